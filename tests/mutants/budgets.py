"""Mutants of budgets and their filters."""

from mutants.patch import on

BUDGETS = [
    on("Ledger.record", "test_a_refused_event_changes_nothing_and_the_error_names_it")(
        "budget-after-recording", "an event is recorded before it is compared with the budget",
        "self.check_budget({event: 1})\nself.events[event] += 1",
        "self.events[event] += 1\nself.budget and self.budget.check(self.events - Counter([event]), {event: 1})",
    ),
    on("BudgetedEvents.check_budget", "test_a_fit_whose_plan_does_not_fit_is_refused_before_its_first_round")(
        "budget-ignores-plans", "a plan of several events is compared event by event, while its rounds run",
        "self.budget.check(self.events, plan)",
        "self.budget.check(self.events, plan if sum(plan.values()) == 1 else {})",
    ),
    on("_sums_of", "test_an_event_without_a_theorem_for_the_filter_is_refused")(
        "budget-without-theorem", "an event without a theorem for the filter costs nothing",
        "cost = math.inf", "cost = 0.0",
    ),
    on("Budget._sums", "test_shuffled_reports_count_as_local_ones_and_corrections_are_never_refused")(
        "budget-ignores-amended", "events with a corrected crowd are left out of the budget",
        "events.items()",
        "((event, times) for event, times in events.items() if getattr(event, 'n_users', 2) != 1)",
    ),
    on("Budget._sums", "test_no_adaptive_sequence_of_pure_events_exceeds_the_budget")(
        "budget-ignores-an-event", "repeated events are charged once",
        "sums.plus(_sums_of(self._filter, seen_event(event, self.view)), times)",
        "sums.plus(_sums_of(self._filter, seen_event(event, self.view)), 1)",
    ),
    on("seen_event", "test_a_budget_for_a_trusted_party_takes_no_guarantee_of_others[shares]")(
        "budget-trusts-others", "a budget for local trust takes guarantees that depend on honest nodes",
        "_NOT_TRUSTED.get(view, set()).intersection(parties_of([event]))", "False",
    ),
    on("BudgetedEvents.remaining", "test_a_budget_for_a_trusted_party_takes_no_guarantee_of_others[entity]")(
        "remaining-forgets-trust", "the remaining epsilon for local trust is the one against the server",
        "replace(self.budget, view=view)",
        "replace(self.budget, view={'local': 'server', 'shuffle': 'shuffled_server'}.get(view, view))",
    ),
    on("Ledger._content", "test_a_budget_survives_documents_and_copies")(
        "budget-lost-in-json", "a document of a ledger lacks its budget",
        "self.budget and self.budget.to_dict()", "None",
    ),
    on("Ledger.of_shards", "test_a_budget_survives_documents_and_copies")(
        "budget-lost-in-shards", "the joined ledger of shards has no budget", "joined.budget = ledgers[0].budget",
        "pass",
    ),
    on("Budget._has_theorem", "test_own_deltas_and_distances_have_a_fixed_share")(
        "budget-own-delta-free", "the releases' own deltas and distances are not limited",
        "sums.own_delta + stretched <= _OWN_SHARE * Fraction(self.delta)", "True",
    ),
    on("Budget._loss_delta", "test_the_filter_leaves_the_share_of_own_deltas")(
        "budget-whole-delta", "the filter of a budget spends the delta of the releases themselves as well",
        "-float_up(Fraction(self.delta) * (_OWN_SHARE - 1))", "self.delta",
    ),
    on("pure_mu", "test_the_mu_of_a_pure_release_dominates_its_trade_off")(
        "pure-mu-too-small", "a pure release counts with a mu below the worst case",
        "up(-2 * float(scipy.special.ndtri_exp(-log1p_exp(epsilon))))",
        "up(-1.98 * float(scipy.special.ndtri_exp(-log1p_exp(epsilon))))",
    ),
    on("CentralModel.fit", "test_every_plan_that_a_release_may_choose_must_fit")(
        "budget-of-first-plan", "only the first of a model's alternative plans is compared with the budget",
        "fit.check_budget(data, lambda: self._plans(phases))", "fit.check_budget(data, lambda: [phases])",
    ),
    on("refit", "test_a_refit_needs_the_ledger_of_the_earlier_fit")(
        "refit-with-another-ledger", "a refit writes to a ledger that lacks the earlier fit",
        "earlier.events - ledger.events", "()",
    ),
]  # fmt: skip
