"""Mutants of stored and resumed runs, and of the costs of unfinished fits."""

from mutants.patch import on

STORED_RUNS = [
    # ---- identity of a run -------------------------------------------------------------------------------------------
    on(
        "describe_arithmetic", "test_a_copied_run_is_not_resumed_with_another_instruction_set",
        "test_a_run_keeps_to_one_instruction_set",
    )(
        "checkpoint-takes-other-arithmetic", "a copied run is resumed with a different instruction set",
        "{'instruction set': instruction_set()} | _describe_process()", "_describe_process()",
    ),
    on("Checkpoint._bindings", "test_files_of_two_runs_alike_but_for_their_names_are_not_mixed")(
        "checkpoint-mixes-runs", "files of two runs with different keys are mixed",
        "{} if self.run is None else {_KEY_NAME: self.run}", "{_KEY_NAME: ''}",
    ),
    on("Checkpoint.new_key", "test_a_run_in_the_same_folder_is_another_run")(
        "runs-are-all-one", "runs in the same folder have the same identity", "secrets.token_hex(16)", "'0' * 32",
    ),
    # ---- costs of unfinished fits ------------------------------------------------------------------------------------
    on(
        "Account.__init__", "test_only_the_resumed_run_replaces_its_cost",
        "test_a_run_in_the_same_folder_is_another_run",
    )(
        "resumed-drops-all", "the unfinished fits of other folders are dropped from the account",
        "tuple(rest for fit in unfinished if (rest := fit.without(self.run)) is not None)", "()",
    ),
    on(
        "RunEvents._set_run", "test_each_round_is_once_in_the_ledger_of_a_run_that_stops_at_each_moment",
        "test_costs_between_the_processes_stay",
    )(
        "resumed-is-charged-twice", "the first rounds of a resumed fit are charged twice",
        "events - earlier", "events",
    ),
    on("Account.__init__", "test_costs_before_the_run_stay_with_a_run_that_another_process_resumes")(
        "resumed-forgets-earlier-fits", "another process resumes a run without the costs of fits before it",
        "tuple(fit for fit in earlier if fit.note not in known)", "()",
    ),
    on("StoredFit.open_account", "test_a_resumed_fit_that_fails_at_once_keeps_the_cost_of_the_run")(
        "resumed-forgets-its-cost", "a resumed fit that fails early lacks the costs of the interrupted process",
        "is_kept(path)", "False",
    ),
    on("RunAccount.__init__", "test_a_run_resumed_from_an_older_copy_keeps_later_costs")(
        "older-copy-forgets", "later rounds are missing from the account after an older copy is resumed",
        "ledger._of_run(run) | charged", "Counter(charged)",
    ),
    on(
        "_fit_and_finish", "test_features_that_cannot_be_copied_are_refused_before_counts_are_released",
        "test_the_cost_is_recorded_at_every_line_after_the_first_release[DPGram]",
    )(
        "cost-lost-in-the-end", "the cost of a fit is lost if its parameters cannot be copied",
        "parameters = model._copied_parameters()\nfit(model, *arguments, **options)\nmodel._finish(parameters)",
        "fit(model, *arguments, **options)\nvars(model).pop('_account_', None)\n"
        "model._finish(model._copied_parameters())",
    ),
    on("transactional", "test_a_second_interruption_loses_no_cost")(
        "cost-lost-by-two-interruptions", "the cost of a fit is lost after a second interruption",
        """
        try:
            try:
                working = self._unfitted()
                state = working.__dict__
                with _locked(fit, options):
                    _fit_and_finish(fit, working, *arguments, **options)
                _number_run(type(self).__name__, state, options)
                if '_account_' in state:
                    state['_account_'].forget_run()
                finished = _without_account(state)
                self.__dict__ = finished
            except BaseException as error:
                _keep_what_was_spent(self, state, finished, error)
                raise
        except BaseException as error:
            _keep_what_was_spent(self, state, finished, error)
            raise
        """,
        """
        try:
            working = self._unfitted()
            state = working.__dict__
            with _locked(fit, options):
                _fit_and_finish(fit, working, *arguments, **options)
            _number_run(type(self).__name__, state, options)
            if '_account_' in state:
                state['_account_'].forget_run()
            finished = _without_account(state)
            self.__dict__ = finished
        except BaseException as error:
            _keep_what_was_spent(self, state, finished, error)
            raise
        """,
    ),
]  # fmt: skip
