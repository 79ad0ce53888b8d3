"""Private prototypes over Flower: each node is an entity, such as a hospital, and sends noisy sums once."""
