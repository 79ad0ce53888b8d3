"""FedGNN: federated graph attention, protected by pseudo items and local noise, or by noise of the server."""

__all__: list[str] = []
