"""FedGNN: federated graph attention whose clients hide behind pseudo items and local noise, or a server's."""

__all__: list[str] = []
