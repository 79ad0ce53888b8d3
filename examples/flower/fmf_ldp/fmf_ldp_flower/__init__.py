"""FMF-LDP over Flower: each node is a group of users, which sends randomized reports only."""
