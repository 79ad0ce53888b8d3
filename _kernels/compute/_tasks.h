// A barrier inside the compiled code for tasks of one kernel, which run on threads of Python.
//
// A barrier of Python took a twelfth of a 4 ms epoch of `sgd`: on a virtual machine, a sleeping thread needs some 50 us
// to wake up.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <thread>

namespace fastfedrec {

enum { ARRIVALS_LINE = 8 };  // int64 on a cache line: `arrivals` has one line for each task

static_assert(sizeof(std::atomic<int64_t>) == sizeof(int64_t), "a counter is a plain number in memory");

// Record that this task has completed `phase` phases.
static inline void report_phase(int64_t* arrivals, ptrdiff_t task, int64_t phase) {
    reinterpret_cast<std::atomic<int64_t>*>(arrivals + task * ARRIVALS_LINE)->store(phase, std::memory_order_release);
}

// Record that this task has ended: no task waits for it again.
static inline void report_end(int64_t* arrivals, ptrdiff_t task) {
    report_phase(arrivals, task, std::numeric_limits<int64_t>::max());
}

// Wait until every task has completed `phase` phases.
static inline void wait_for_all(int64_t* arrivals, ptrdiff_t n_tasks, int64_t phase) {
    for (ptrdiff_t task = 0; task < n_tasks; ++task) {
        const auto* n_phases = reinterpret_cast<std::atomic<int64_t>*>(arrivals + task * ARRIVALS_LINE);
        for (int n_checks = 0; n_phases->load(std::memory_order_acquire) < phase; ++n_checks)
            if (n_checks > 10000) {  // some 10 us
                std::this_thread::yield();
                n_checks = 10000;
            }
    }
}

}  // namespace fastfedrec
