from fastfedrec.accounting import CommunicationLedger, RoundTraffic


def test_totals_add_up():
    ledger = CommunicationLedger()
    # Section 5.3 of the paper: V of 1,000 x 5 floats down, and 100 reports up.
    for _ in range(20):
        ledger.record(RoundTraffic(download=20_000, upload=413, n_clients=50_000))
    totals = ledger.to_dict()
    assert totals["download_per_client_per_round"] == 20_000
    assert totals["upload_per_client"] == 20 * 413
    assert totals["download_total"] == 20 * 20_000 * 50_000
    assert "8,260" in ledger.summary()


def test_an_empty_ledger_has_zeros():
    assert set(CommunicationLedger().to_dict().values()) == {0}
    assert "0 rounds" in CommunicationLedger().summary()
