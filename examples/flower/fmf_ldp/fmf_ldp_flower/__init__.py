"""FMF-LDP over Flower: each node is a group of users and sends only randomized reports."""
