"""The communication ledger: the bytes that each client downloads and uploads."""

from dataclasses import dataclass, field, replace
from typing import Any

from fastfedrec.core.check import check_integer
from fastfedrec.core.text import format_table

__all__ = ["CommunicationLedger", "RoundTraffic"]


@dataclass(frozen=True)
class RoundTraffic:
    """Bytes that clients move in one round.

    Parameters
    ----------
    download : int
        Bytes that one client receives.
    upload : int
        Bytes that one client sends.
    n_clients : int
        Number of clients requested.
    """

    download: int
    upload: int
    n_clients: int

    def __post_init__(self) -> None:
        for name in ("download", "upload", "n_clients"):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), low=0))


@dataclass
class CommunicationLedger:
    """Bytes downloaded and uploaded, per client and round.

    Parameters
    ----------
    rounds : list of RoundTraffic
        Traffic of each round, in order.
    n_clients : int or None
        Public number of clients that is written for every round if the number of requested clients must stay secret.
    """

    rounds: list[RoundTraffic] = field(default_factory=list)
    n_clients: int | None = None

    def __post_init__(self) -> None:
        if self.n_clients is not None:
            self.n_clients = check_integer("n_clients", self.n_clients, low=0)

    def record(self, traffic: RoundTraffic) -> None:
        """Add one round.

        Parameters
        ----------
        traffic : RoundTraffic
            Traffic of the round.
        """
        self.rounds.append(traffic if self.n_clients is None else replace(traffic, n_clients=self.n_clients))

    def to_dict(self) -> dict[str, Any]:
        """Return the totals and the last round's figures.

        Returns
        -------
        dict
            Numbers of bytes, as ints.
        """
        last = self.rounds[-1] if self.rounds else RoundTraffic(0, 0, 0)
        return {
            "n_rounds": len(self.rounds),
            "n_clients": last.n_clients,
            "download_per_client_per_round": last.download,
            "upload_per_client_per_round": last.upload,
            "download_per_client": sum(r.download for r in self.rounds),
            "upload_per_client": sum(r.upload for r in self.rounds),
            "download_total": sum(r.download * r.n_clients for r in self.rounds),
            "upload_total": sum(r.upload * r.n_clients for r in self.rounds),
        }

    def summary(self) -> str:
        """Return a table of the bytes of one client and of all clients.

        Returns
        -------
        str
            Text of several lines.
        """
        totals = self.to_dict()
        rows = [
            (
                direction,
                f"{totals[f'{direction}_per_client_per_round']:,}",
                f"{totals[f'{direction}_per_client']:,}",
                f"{totals[f'{direction}_total']:,}",
            )
            for direction in ("download", "upload")
        ]
        title = f"Communication ledger: bytes, {totals['n_rounds']} rounds, {totals['n_clients']:,} clients"
        table = format_table(("", "client and round", "client, whole run", "all clients"), rows)
        return f"{title}\n\n{table}"
