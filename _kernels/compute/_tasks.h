// Tasks of one kernel, on threads of Python's, that wait for each other: a barrier inside the compiled code.
//
// Through Python's threads the same took a twelfth of a 4 ms epoch of `sgd`: a thread that sleeps on a virtual machine
// wakes after some 50 us.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>

namespace fastfedrec {

enum { ARRIVALS_LINE = 8 };  // int64 on a line of cache: `arrivals` has one for each task

static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t), "a counter is a plain number in memory");

// Record that this task has completed `phase` phases.
static inline void tell(int64_t* arrivals, ptrdiff_t task, int64_t phase) {
    reinterpret_cast<std::atomic<int64_t>*>(arrivals + task * ARRIVALS_LINE)->store(phase, std::memory_order_release);
}

// Record that this task has ended: no task waits for it again.
static inline void leave(int64_t* arrivals, ptrdiff_t task) {
    tell(arrivals, task, std::numeric_limits<int64_t>::max());
}

// Wait until every task has completed `phase` phases.
static inline void wait_for_all(int64_t* arrivals, ptrdiff_t n_tasks, int64_t phase) {
    for (ptrdiff_t task = 0; task < n_tasks; ++task) {
        const auto* done = reinterpret_cast<std::atomic<int64_t>*>(arrivals + task * ARRIVALS_LINE);
        for (int turns = 0; done->load(std::memory_order_acquire) < phase; ++turns)
            if (turns > 10000) {  // some 10 us
                std::this_thread::yield();
                turns = 10000;
            }
    }
}

}  // namespace fastfedrec
