"""What tests of flower share."""

from fastfedrec import FMFLDP, PrivatePrototypes

FMF = {
    "reports": FMFLDP(n_rounds=3),
    "turned": FMFLDP(n_rounds=2, normalize="l2", rotate=True),
    "published": FMFLDP(n_rounds=2, variant="published"),
    "values": FMFLDP(n_rounds=2, use_values=True),
    "gradients": FMFLDP(n_rounds=2, epsilon=None),
}


PROTOTYPES = {
    "masked": PrivatePrototypes(n_prototypes=2),
    "zero_filled": PrivatePrototypes(n_prototypes=2, prototypes="zero_filled", delta=1e-6),
    "support": PrivatePrototypes(epsilon=4.0, support="gumbel", n_support_items=20),
    "clusters": PrivatePrototypes(n_prototypes=3, grouping="kmeans"),
    "published": PrivatePrototypes(2, prototypes="zero_filled", grouping="kmeans", variant="published"),
    "exact": PrivatePrototypes(n_prototypes=3, epsilon=None),
}
