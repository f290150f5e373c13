"""The paper's published numbers: every cell of Tables I to IV. None is a cell that the paper shows as `-`.

Zaccone, Rizzardi, Caldarola, Ciccone, Caputo: Speeding up Heterogeneous Federated Learning with Sequentially Trained
Superclients, ICPR 2022 (arXiv 2201.10899). Rows have the names that the experiments (experiments/*.yaml) give them.
"""

ALPHAS = (0.0, 0.2, 0.5)
SHARES = (0.7, 0.8, 0.9)
MEASURES = ("balance ratio", "covered classes")

# Accuracy in % of the centralized model.
CENTRALIZED = {"cifar10": 85.72, "cifar100": 55.13}

# Table I: final accuracy in %, by alpha.
TABLE_1: dict[str, dict[str, tuple[float | None, ...]]] = {
    "cifar10": {
        "FedAvg": (71.41, 76.82, 77.98),
        "FedProx": (71.41, 76.84, 77.98),
        "SCAFFOLD": (79.02, 76.47, 78.25),
        "FedDyn": (83.26, 81.74, 82.41),
        "FedSeq": (82.21, 82.20, 82.23),
        "FedSeqInter": (82.65, 82.79, 83.32),
        "FedSeq + FedProx": (82.14, 82.16, 82.49),
        "FedSeq + FedDyn": (82.90, 83.55, 83.95),
        "FedSeqInter + FedProx": (82.95, 82.95, 83.52),
        "FedSeqInter + FedDyn": (83.11, 83.06, 83.33),
    },
    "cifar100": {
        "FedAvg": (42.66, 48.02, 48.89),
        "FedProx": (42.66, 48.20, 48.88),
        "SCAFFOLD": (42.04, 51.04, 51.20),
        "FedDyn": (None, 54.41, 54.99),
        "FedSeq": (46.00, 49.55, 49.82),
        "FedSeqInter": (50.27, 51.60, 51.94),
        "FedSeq + FedProx": (46.02, 49.71, 49.62),
        "FedSeq + FedDyn": (50.45, 50.23, 50.80),
        "FedSeqInter + FedProx": (51.13, 51.54, 52.33),
        "FedSeqInter + FedDyn": (51.06, 51.04, 52.68),
    },
}  # fmt: skip

# Table II: (round, speedup over FedAvg) at 70, 80 and 90 % of the centralized accuracy; alpha 0, then 0.2, then 0.5.
Rate = tuple[int | None, float | None]
TABLE_2: dict[str, dict[str, tuple[tuple[Rate, ...], ...]]] = {
    "cifar10": {
        "FedAvg": (
            ((4036, 1.0), (7649, 1.0), (None, None)),
            ((2384, 1.0), (4507, 1.0), (None, None)),
            ((1945, 1.0), (3749, 1.0), (8791, 1.0)),
        ),
        "FedProx": (
            ((4036, 1.0), (7649, 1.0), (None, None)),
            ((2384, 1.0), (4507, 1.0), (None, None)),
            ((1946, 1.0), (3753, 1.0), (8786, 1.0)),
        ),
        "SCAFFOLD": (
            ((2229, 1.81), (3914, 1.95), (8043, None)),
            ((2554, 0.93), (4771, 0.94), (None, None)),
            ((1934, 1.01), (3761, 1.0), (8453, 1.04)),
        ),
        "FedDyn": (
            ((563, 7.17), (954, 8.02), (2131, None)),
            ((450, 5.3), (797, 5.65), (2059, None)),
            ((374, 5.2), (634, 5.91), (1648, 5.33)),
        ),
        "FedSeq": (
            ((594, 6.79), (991, 7.72), (2047, None)),
            ((407, 5.86), (746, 6.04), (1682, None)),
            ((325, 5.98), (619, 6.06), (1358, 6.47)),
        ),
        "FedSeq 2": (
            ((873, 4.62), (1502, 5.09), (3677, None)),
            ((387, 6.16), (720, 6.26), (1543, None)),
            ((323, 6.02), (620, 6.05), (1409, 6.24)),
        ),
        "FedSeq + FedProx": (
            ((594, 6.79), (991, 7.72), (2046, None)),
            ((407, 5.86), (746, 6.04), (1682, None)),
            ((325, 5.98), (619, 6.06), (1358, 6.47)),
        ),
        "FedSeq + FedDyn": (
            ((345, 11.7), (581, 13.17), (1341, None)),
            ((253, 9.42), (447, 10.08), (1113, None)),
            ((232, 8.38), (403, 9.3), (933, 9.42)),
        ),
        "FedSeqInter": (
            ((762, 5.3), (1305, 5.86), (2492, None)),
            ((538, 4.43), (1004, 4.49), (2099, None)),
            ((433, 4.49), (814, 4.61), (1805, 4.87)),
        ),
        "FedSeqInter + FedProx": (
            ((735, 5.49), (1264, 6.05), (2388, None)),
            ((544, 4.38), (1000, 4.51), (2084, None)),
            ((436, 4.46), (825, 4.54), (1747, 5.03)),
        ),
        "FedSeqInter + FedDyn": (
            ((733, 5.51), (1262, 6.06), (2344, None)),
            ((533, 4.47), (959, 4.7), (2061, None)),
            ((425, 4.58), (796, 4.71), (1750, 5.02)),
        ),
    },
    "cifar100": {
        "FedAvg": (
            ((14412, 1.0), (None, None), (None, None)),
            ((6409, 1.0), (10253, 1.0), (None, None)),
            ((5879, 1.0), (9331, 1.0), (None, None)),
        ),
        "FedProx": (
            ((14412, 1.0), (None, None), (None, None)),
            ((6363, 1.01), (10277, 1.0), (None, None)),
            ((5918, 0.99), (9250, 1.01), (None, None)),
        ),
        "SCAFFOLD": (
            ((14483, 1.0), (None, None), (None, None)),
            ((7088, 0.9), (10191, 1.01), (17200, None)),
            ((6951, 0.85), (10373, 0.9), (16744, None)),
        ),
        "FedDyn": (
            ((None, None), (None, None), (None, None)),
            ((1031, 6.22), (1603, 6.4), (2634, None)),
            ((868, 6.77), (1433, 6.51), (3018, None)),
        ),
        "FedSeq": (
            ((3009, 4.79), (5780, None), (None, None)),
            ((901, 7.11), (1421, 7.22), (3436, None)),
            ((854, 6.88), (1264, 7.38), (2812, None)),
        ),
        "FedSeq 2": (
            ((3968, 3.63), (9378, None), (None, None)),
            ((922, 6.95), (1396, 7.34), (3924, None)),
            ((843, 6.97), (1266, 7.37), (2713, None)),
        ),
        "FedSeq + FedProx": (
            ((2946, 4.89), (6005, None), (None, None)),
            ((898, 7.14), (1397, 7.34), (3033, None)),
            ((843, 6.97), (1298, 7.19), (2833, None)),
        ),
        "FedSeq + FedDyn": (
            ((1914, 7.53), (3293, None), (7511, None)),
            ((556, 11.53), (987, 10.39), (2014, None)),
            ((541, 10.87), (957, 9.75), (1912, None)),
        ),
        "FedSeqInter": (
            ((3028, 4.76), (4333, None), (8494, None)),
            ((1177, 5.45), (1734, 5.91), (3004, None)),
            ((1034, 5.69), (1524, 6.12), (2675, None)),
        ),
        "FedSeqInter + FedProx": (
            ((3027, 4.76), (4310, None), (7149, None)),
            ((1163, 5.51), (1721, 5.96), (2915, None)),
            ((1033, 5.69), (1525, 6.12), (2616, None)),
        ),
        "FedSeqInter + FedDyn": (
            ((2964, 4.86), (4183, None), (7539, None)),
            ((1180, 5.43), (1757, 5.84), (3018, None)),
            ((1031, 5.7), (1538, 6.07), (2547, None)),
        ),
    },
}  # fmt: skip

# Table III: final accuracy in % by grouping criterion, by alpha.
TABLE_3: dict[str, dict[str, tuple[float | None, ...]]] = {
    "cifar10": {
        "FedSeq / - / random / -": (81.90, 82.09, 82.12),
        "FedSeq / clf / K-means / Euclidean": (82.30, 81.78, 82.48),
        "FedSeq / conf / K-means / Euclidean": (82.04, 81.99, 82.37),
        "FedSeq / conf / greedy / KL": (82.21, 82.20, 82.22),
        "FedSeq / conf / greedy / Cosine": (82.09, 81.85, 82.71),
        "FedSeq / clf / greedy / Cosine": (79.95, 82.06, 82.83),
        "FedSeqInter / conf / greedy / KL": (82.65, 82.79, 83.32),
    },
    "cifar100": {
        "FedSeq / - / random / -": (46.39, 48.62, 49.44),
        "FedSeq / clf / K-means / Euclidean": (44.91, 48.74, 49.60),
        "FedSeq / conf / K-means / Euclidean": (43.55, 49.43, 49.79),
        "FedSeq / conf / greedy / KL": (45.97, 49.56, 49.82),
        "FedSeq / conf / greedy / Cosine": (45.79, 48.98, 49.61),
        "FedSeq / clf / greedy / Cosine": (45.22, 48.92, 49.62),
        "FedSeqInter / conf / greedy / KL": (50.27, 51.60, 51.94),
    },
}  # fmt: skip

# Table IV: balance ratio and covered classes, means over the three alphas.
TABLE_4: dict[str, dict[str, tuple[float, float]]] = {
    "cifar10": {
        "classifierAll / Greedy / Cosine distance": (0.334, 0.886),
        "classifierAll / Greedy / Wasserstein distance": (0.081, 0.759),
        "classifierAll / K-means / Euclidean distance": (0.207, 0.902),
        "classifierLast2 / Greedy / Cosine distance": (0.275, 0.871),
        "classifierLast2 / Greedy / Wasserstein distance": (0.090, 0.746),
        "classifierLast2 / K-means / Euclidean distance": (0.203, 0.900),
        "classifierLast / Greedy / Cosine distance": (0.266, 0.880),
        "classifierLast / Greedy / Wasserstein distance": (0.085, 0.755),
        "classifierLast / K-means / Euclidean distance": (0.204, 0.902),
        "confidence / Greedy / Cosine distance": (0.311, 0.886),
        "confidence / Greedy / Wasserstein distance": (0.077, 0.784),
        "confidence / Greedy / KL divergence": (0.271, 0.870),
        "confidence / Greedy / Gini index": (0.298, 0.876),
        "confidence / K-means / Euclidean distance": (0.173, 0.894),
        "- / Random / -": (0.068, 0.835),
    },
    "cifar100": {
        "classifierAll / Greedy / Cosine distance": (0.028, 0.667),
        "classifierAll / Greedy / Wasserstein distance": (0.011, 0.651),
        "classifierAll / K-means / Euclidean distance": (0.009, 0.655),
        "classifierLast2 / Greedy / Cosine distance": (0.034, 0.668),
        "classifierLast2 / Greedy / Wasserstein distance": (0.009, 0.652),
        "classifierLast2 / K-means / Euclidean distance": (0.009, 0.654),
        "classifierLast / Greedy / Cosine distance": (0.043, 0.668),
        "classifierLast / Greedy / Wasserstein distance": (0.010, 0.650),
        "classifierLast / K-means / Euclidean distance": (0.009, 0.655),
        "confidence / Greedy / Cosine distance": (0.014, 0.658),
        "confidence / Greedy / Wasserstein distance": (0.009, 0.654),
        "confidence / Greedy / KL divergence": (0.011, 0.656),
        "confidence / Greedy / Gini index": (0.012, 0.657),
        "confidence / K-means / Euclidean distance": (0.009, 0.656),
        "- / Random / -": (0.009, 0.655),
    },
}  # fmt: skip

_NAMES_IN_TABLE_4 = {
    None: "-",
    "classifier-all": "classifierAll",
    "classifier-last2": "classifierLast2",
    "classifier-last": "classifierLast",
    "confidence": "confidence",
    "greedy": "Greedy",
    "kmeans": "K-means",
    "random": "Random",
    "cosine": "Cosine distance",
    "wasserstein": "Wasserstein distance",
    "kl": "KL divergence",
    "gini": "Gini index",
    "euclidean": "Euclidean distance",
}


def published_quality(
    dataset: str, approximator: str | None, metric: str | None, method: str
) -> tuple[float, float] | None:
    """Table IV's balance ratio and covered classes of a criterion; None where the paper has none."""
    row = " / ".join(_NAMES_IN_TABLE_4.get(part, "") for part in (approximator, method, metric))
    return TABLE_4.get(dataset, {}).get(row)
