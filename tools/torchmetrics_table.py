#!/usr/bin/env python3
"""Writes tests/data/torchmetrics.json: inputs, options and what torchmetrics makes of them, for the table test.

    python3 -m venv /tmp/venv && /tmp/venv/bin/pip install torchmetrics==1.9.0 torch numpy   # about 5 GB
    /tmp/venv/bin/python tools/torchmetrics_table.py tests/data/torchmetrics.json

The peer computes in float64: our accumulators are float64 whatever the input, so each input is rounded to its own type
first, then widened for the peer. Data sets are shared by many cases; a case names one and gives the class of
torchmetrics, its options, the value of each batch alone (forward) and the value over all batches. Where the peer
throws, the case has its message, and "ours" where we have a value nevertheless (the reason is beside it, here).
"""
import fractions
import json
import math
import platform
import sys
import warnings

import numpy
import torch
import torchmetrics
from torchmetrics import aggregation, classification, regression, text

DTYPES = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16,
          "i64": torch.int64, "i32": torch.int32, "u8": torch.uint8, "bool": torch.bool}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
NAN, INF = math.nan, math.inf
CLASSES = {}
for module in (text, regression, classification, aggregation):
    CLASSES.update(vars(module))

random = numpy.random.RandomState(20)
datasets, cases = {}, []


def tensor(values, dtype="f64"):
    return torch.tensor(values, dtype=DTYPES[dtype])


def dataset(name, *batches):
    """Keeps *batches*, each a list of tensors, under a name for `case`."""
    assert name not in datasets, name
    datasets[name] = batches
    return name


def plain(value):
    """A tensor or number as JSON: lists of numbers, where NaN and the infinities are strings."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    if isinstance(value, list):
        return [plain(x) for x in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}[str(value)]
    return value


def shortest(x, dtype):
    """The shortest decimal that becomes the same number of type *dtype* again."""
    if dtype == torch.float32 and math.isfinite(x):
        return float(str(numpy.float32(x)))
    return x


def stored(x):
    values = [shortest(v, x.dtype) for v in x.flatten().tolist()]
    return {"type": NAMES[x.dtype], "shape": list(x.shape), "values": plain(values)}


def widened(batch):
    """A copy of *batch*, for some metrics of the peer write into their inputs."""
    return [x.clone().double() if x.is_floating_point() else x.clone() for x in batch]


def peer(metric, options, batches):
    """The value of each batch and that of all; a string is the message of what it threw."""
    def fresh():
        return CLASSES[metric](**options).set_dtype(torch.float64)

    def value_of(call):
        try:
            return {"value": plain(call())}
        except Exception as error:  # whatever the peer throws is its answer
            return {"peer_throws": (str(error).splitlines() or [type(error).__name__])[0][:120]}

    def over_all():
        instance = fresh()
        for batch in batches:
            instance.update(*widened(batch))
        return instance.compute()

    return [value_of(lambda b=b: fresh()(*widened(b))) for b in batches], value_of(over_all)


def case(data, metric, ours=None, ours_forward=None, **options):
    """One case. *ours* and *ours_forward* are our values where we differ on purpose; "throws" is one."""
    forward, total = peer(metric, options, datasets[data])
    if ours is not None:
        total["ours"] = plain(ours)
    for entry, value in zip(forward, ours_forward or []):
        if value is not None:
            entry["ours"] = plain(value)
    # What the peer cannot do is an error here too, unless the case says otherwise.
    for entry in [*forward, total]:
        if "peer_throws" in entry:
            entry.setdefault("ours", "throws")
    shown = ", ".join(f"{key}={value}" for key, value in options.items())
    cases.append({"name": f"{metric}({shown}) of {data}", "metric": metric,
                  "options": {key: plain(value) for key, value in options.items()},
                  "data": data, "forward": forward, **total})


def uniform(*shape, low=0.0, high=1.0, decimals=3):
    return numpy.round(random.uniform(low, high, shape), decimals)


def normal(*shape, decimals=3):
    return numpy.round(random.standard_normal(shape), decimals)


# ---------------------------------------------------------------- aggregation


def aggregations():
    simple = [dataset("values", [tensor([1.0, 3.0])], [tensor([10.0])]),
              dataset("values_scalar", [tensor(2.0)], [tensor(4.5)], [tensor(-1.0)]),
              dataset("values_f32", [tensor(normal(3, 2), "f32")], [tensor(normal(5), "f32")]),
              dataset("values_f16", [tensor(normal(6), "f16")], [tensor(normal(5), "f16")]),
              dataset("values_bf16", [tensor(normal(6), "bf16")], [tensor(normal(5), "bf16")]),
              dataset("values_int", [tensor([3, -7, 2], "i64")], [tensor([5, 5], "i64")]),
              dataset("values_i32", [tensor([3, -7, 2], "i32")]),
              dataset("values_far_off", [tensor(normal(9) + 1e8)], [tensor(normal(4) + 1e8)]),
              dataset("values_inf", [tensor([1.0, INF])], [tensor([2.0])]),
              dataset("values_minus_inf", [tensor([1.0, -INF])]),
              dataset("values_empty", [tensor([])]),
              dataset("values_empty_then_some", [tensor([])], [tensor([1.5, 2.5])]),
              dataset("values_none")]
    with_nan = [dataset("nan_between", [tensor([1.0, NAN, 3.0])], [tensor([5.0])]),
                dataset("nan_only", [tensor([NAN, NAN])]),
                dataset("nan_in_last", [tensor([4.0])], [tensor([NAN])])]
    for metric in ("MeanMetric", "SumMetric", "MaxMetric", "MinMetric"):
        for data in simple:
            case(data, metric)
        for data in with_nan:
            for strategy in ("warn", "ignore", "error", "disable", 0.0, 2.5):
                case(data, metric, nan_strategy=strategy)
    weighted = [dataset("weighted", [tensor([1.0, 2.0, 3.0]), tensor([0.5, 0.5, 2.0])]),
                dataset("weighted_batches", [tensor(normal(5)), tensor(uniform(5))],
                        [tensor(normal(2, 3)), tensor(uniform(2, 3))]),
                dataset("weighted_by_one_number", [tensor([1.0, 2.0]), tensor(3.0)], [tensor([7.0]), tensor(1.0)]),
                dataset("weighted_by_row", [tensor(normal(3, 2)), tensor([1.0, 3.0])]),
                dataset("weighted_f32", [tensor(normal(5), "f32"), tensor(uniform(5), "f32")]),
                dataset("weights_int", [tensor(normal(3)), tensor([1, 2, 4], "i64")]),
                dataset("weights_zero", [tensor([1.0, 2.0]), tensor([0.0, 0.0])]),
                dataset("weights_negative", [tensor([1.0, 2.0]), tensor([-1.0, 3.0])])]
    for data in weighted:
        case(data, "MeanMetric")
    # The peer keeps the shape if it can; ours is a vector of all.
    for data in [*simple[:9], "values_empty_then_some", "values_none"]:
        each = [[float(x) for x in batch[0].flatten()] for batch in datasets[data]]
        case(data, "CatMetric", ours=sum(each, []), ours_forward=each)
    for data in [*simple[:9], "nan_between"]:
        for window in (1, 2, 5):
            case(data, "RunningMean", window=window)
    nan_weight = dataset("weight_nan", [tensor([1.0, 2.0, 4.0]), tensor([1.0, NAN, 1.0])])
    for strategy in ("warn", "ignore", "error", 0.0):
        case(nan_weight, "MeanMetric", nan_strategy=strategy)


# ----------------------------------------------------------------- regression


def variations(batches):
    """Exact sums over the samples of *batches*: (t - mean t)^2, (e - mean e)^2 and e^2 of the errors e = p - t."""
    ps, ts = ([fractions.Fraction(x) for batch in batches for x in batch[i].tolist()] for i in (0, 1))
    errors = [fractions.Fraction(float(p - t)) for p, t in zip(ps, ts)]

    def around_mean(xs):
        return sum((x - sum(xs) / len(xs)) ** 2 for x in xs)
    return around_mean(ts), around_mean(errors), sum(e * e for e in errors)


def far_off_regressions():
    """Targets far from zero, whose variance the peer's sums of squares lose: ours are the exact values."""
    own = numpy.random.RandomState(21)  # so that these cases do not change the others
    for exponent in (6, 8, 9):
        batches = []
        for n in (40, 25, 3):
            target = own.standard_normal(n) + 10.0 ** exponent
            batches.append([tensor(target + 0.5 * own.standard_normal(n)), tensor(target)])
        data = dataset(f"pairs_at_1e{exponent}", *batches)

        def ours(value):
            return {"ours": value(*variations(batches)), "ours_forward": [value(*variations([b])) for b in batches]}
        case(data, "R2Score", **ours(lambda t, e, squares: float(1 - squares / t)))
        case(data, "ExplainedVariance", **ours(lambda t, e, squares: float(1 - e / t)))
        case(data, "RelativeSquaredError", **ours(lambda t, e, squares: float(squares / t)))
        case(data, "RelativeSquaredError", squared=False,
             **ours(lambda t, e, squares: math.sqrt(squares / t)))


def regressions():
    doc = ([2.5, 0.0, 2.0, 8.0], [3.0, -0.5, 2.0, 7.0])
    doc2 = ([[0.0, 2.0], [-1.0, 2.0], [8.0, -5.0]], [[0.5, 1.0], [-1.0, 1.0], [7.0, -6.0]])

    def pair(n, dtype="f64", offset=0.0, shape=()):
        target = normal(n, *shape) + offset
        return [tensor(target + 0.3 * normal(n, *shape), dtype), tensor(target, dtype)]

    one = [dataset("pairs", [tensor(doc[0]), tensor(doc[1])]),
           dataset("pairs_batches", pair(7), pair(4), pair(12)),
           dataset("pairs_f32", pair(9, "f32"), pair(5, "f32")),
           dataset("pairs_f16", pair(9, "f16"), pair(5, "f16")),
           dataset("pairs_bf16", pair(9, "bf16"), pair(5, "bf16")),
           dataset("pairs_mixed", [pair(6, "f32")[0], pair(6)[1]]),
           dataset("pairs_int", [tensor([1, 4, 7, -3], "i64"), tensor([2, 4, 5, -1], "i64")]),
           dataset("pairs_i32", [tensor([1, 4, 7], "i32"), tensor([2, 4, 5], "i32")]),
           dataset("pairs_far_off", pair(8, offset=1e4), pair(8, offset=1e4)),
           dataset("pairs_far_off_f32", pair(8, "f32", offset=1e4)),
           dataset("pairs_of_one_and_one", pair(1), pair(1)),
           dataset("pairs_of_one", [tensor([1.5]), tensor([2.0])]),
           dataset("pairs_zero_target", [tensor([1.0, 2.0]), tensor([0.0, 2.0])]),
           dataset("pairs_zero_both", [tensor([0.0, 1.0, 3.0]), tensor([0.0, 1.0, 2.0])]),
           dataset("pairs_constant_target", [tensor([1.0, 2.0, 4.0]), tensor([3.0, 3.0, 3.0])]),
           dataset("pairs_constant_both", [tensor([3.0, 3.0, 3.0]), tensor([3.0, 3.0, 3.0])]),
           dataset("pairs_constant_preds", [tensor([2.0, 2.0, 2.0]), tensor([1.0, 3.0, 4.0])]),
           dataset("pairs_opposite", [tensor([10.0, -10.0, 5.0]), tensor([-1.0, 1.0, -0.5])]),
           dataset("pairs_equal", [tensor([1.0, 2.0, 3.5]), tensor([1.0, 2.0, 3.5])]),
           dataset("pairs_nan", [tensor([1.0, NAN, 2.0]), tensor([1.0, 2.0, 3.0])], pair(3)),
           dataset("pairs_nan_target", [tensor([1.0, 3.0, 2.0]), tensor([1.0, NAN, 3.0])]),
           dataset("pairs_inf", [tensor([1.0, INF, 2.0]), tensor([1.0, 2.0, 3.0])]),
           dataset("pairs_tiny", [tensor([1e-9, 2e-9, 3e-9]), tensor([2e-9, 2e-9, 1e-9])]),
           dataset("pairs_huge", [tensor([1e12, 2e12, 3e12]), tensor([2e12, 2e12, 1e12])])]
    shaped = [dataset("pairs_3d", pair(2, shape=(3, 2)), pair(1, shape=(3, 2)))]
    rows = [dataset("rows", [tensor(doc2[0]), tensor(doc2[1])]),
            dataset("rows_batches", pair(5, shape=(2,)), pair(3, shape=(2,))),
            dataset("rows_f32", pair(5, "f32", shape=(2,)), pair(6, "f32", shape=(2,))),
            dataset("rows_constant_output", [tensor([[1.0, 2.0], [2.0, 2.5], [3.0, 2.0]]),
                                             tensor([[1.5, 2.0], [2.0, 2.0], [2.5, 2.0]])])]
    empty = dataset("pairs_empty", [tensor([]), tensor([])])
    empty_first = dataset("pairs_empty_then_some", [tensor([]), tensor([])], pair(4))
    none = dataset("pairs_none")
    shapes_differ = dataset("pairs_shapes_differ", [tensor([1.0, 2.0]), tensor([1.0, 2.0, 3.0])])

    sums = ["MeanSquaredError", "MeanAbsoluteError", "MeanAbsolutePercentageError"]
    for metric in sums:
        for data in [*one, *shaped, rows[0], empty, empty_first, none, shapes_differ]:
            case(data, metric)
    for data in [*one[:9], empty, none, rows[1]]:
        case(data, "MeanSquaredError", squared=False)
    for data in rows:
        for metric in sums[:2]:
            case(data, metric, num_outputs=2)
        case(data, "MeanSquaredError", num_outputs=2, squared=False)

    for data in one:
        case(data, "R2Score")
    for data in (empty, none, shapes_differ):
        case(data, "R2Score")
    case(empty_first, "R2Score")
    for data in rows:
        for multioutput in ("raw_values", "uniform_average", "variance_weighted"):
            case(data, "R2Score", multioutput=multioutput)
            case(data, "R2Score", multioutput=multioutput, adjusted=1)
    for data in ("pairs", "pairs_batches", "pairs_f32"):
        for adjusted in (0, 1, 2, 3, 5, 30):
            case(data, "R2Score", adjusted=adjusted)

    for data in one:
        if data in ("pairs_int", "pairs_i32"):  # the peer takes no integers; ours are widened
            datasets["widened"] = [[x.double() for x in batch] for batch in datasets[data]]
            forward, total = peer("PearsonCorrCoef", {}, datasets.pop("widened"))
            case(data, "PearsonCorrCoef", ours=total["value"], ours_forward=[x["value"] for x in forward])
        else:
            case(data, "PearsonCorrCoef")
    # The peer fails to find the maximum of nothing; ours counts nothing.
    case(empty_first, "PearsonCorrCoef", ours_forward=[NAN],
         ours=peer("PearsonCorrCoef", {}, datasets[empty_first][1:])[1]["value"])
    case(shapes_differ, "PearsonCorrCoef")
    for data in rows:
        case(data, "PearsonCorrCoef", num_outputs=2)

    more_regressions(pair, one, rows, [shaped[0], empty_first, none, shapes_differ])

    vectors = [*rows, dataset("rows_with_zero", [tensor([[0.0, 0.0], [1.0, 2.0]]), tensor([[1.0, 1.0], [2.0, 1.0]])]),
               dataset("rows_f16", pair(5, "f16", shape=(4,))), dataset("rows_of_seven", pair(6, shape=(7,)))]
    for data in vectors:
        for reduction in ("sum", "mean", "none"):
            case(data, "CosineSimilarity", reduction=reduction)
    case(shapes_differ, "CosineSimilarity")
    case("pairs", "CosineSimilarity")  # vectors of dimension 0: an error


def more_regressions(pair, one, rows, odd):
    for metric in ("SymmetricMeanAbsolutePercentageError", "WeightedMeanAbsolutePercentageError", "LogCoshError"):
        for data in [*one, *(x for x in odd if metric != "LogCoshError" or x != "pairs_3d")]:
            huge = metric == "LogCoshError" and data == "pairs_huge"  # overflows the peer's cosh
            case(data, metric, ours=1e12 if huge else None, ours_forward=[1e12] if huge else None)
    positive = [dataset("positive", [tensor(uniform(6)), tensor(uniform(6))], [tensor(uniform(3)), tensor(uniform(3))]),
                dataset("positive_f32", [tensor(uniform(6), "f32"), tensor(uniform(6), "f32")])]
    for data in [*positive, "pairs_zero_both", "pairs_far_off", "pairs_of_one", "pairs_nan_target", *odd]:
        case(data, "MeanSquaredLogError")
    for metric in ("ExplainedVariance", "RelativeSquaredError"):
        for data in one:
            case(data, metric)
        case(odd[-1], metric)
    for data in rows:
        for multioutput in ("raw_values", "uniform_average", "variance_weighted"):
            case(data, "ExplainedVariance", multioutput=multioutput)
        for squared in (True, False):
            case(data, "RelativeSquaredError", num_outputs=2, squared=squared)
        case(data, "LogCoshError", num_outputs=2)
    case("pairs_batches", "RelativeSquaredError", squared=False)


# ------------------------------------------------------------- classification


def distribution(n, classes, *shape):
    """Probabilities of shape n x classes x shape that sum to one over the classes, up to rounding."""
    raw = random.uniform(0.05, 1.0, (n, classes, *shape)) ** 2
    return numpy.round(raw / raw.sum(1, keepdims=True), 4)


def labels(classes, *shape):
    return random.randint(0, classes, shape)


BINARY = ([0.1, 0.4, 0.35, 0.8, 0.5, 0.65], [0, 0, 1, 1, 1, 0])
MULTICLASS = ([[.7, .2, .1], [.1, .8, .1], [.2, .5, .3], [.1, .2, .7], [.6, .3, .1], [.2, .6, .2]], [0, 1, 2, 2, 0, 0])
MULTILABEL = ([[.1, .9, .8], [.8, .2, .7]], [[0, 1, 1], [1, 0, 0]])
STATS = ("Accuracy", "Precision", "Recall", "F1Score", "Specificity", "StatScores", "JaccardIndex")
WITH_ZERO_DIVISION = ("Precision", "Recall", "F1Score")
AVERAGES = ("micro", "macro", "weighted", "none")


def binary_data():
    def batch(n, dtype="f64"):
        return [tensor(uniform(n), dtype), tensor(labels(2, n), "i64")]

    scores = {
        "plain": dataset("binary", [tensor(BINARY[0]), tensor(BINARY[1], "i64")]),
        "batches": dataset("binary_batches", batch(20), batch(1), batch(13)),
        "f32": dataset("binary_f32", batch(20, "f32"), batch(9, "f32")),
        "f16": dataset("binary_f16", batch(20, "f16")),
        "bf16": dataset("binary_bf16", batch(20, "bf16")),
        "logits": dataset("binary_logits", [tensor(normal(15)), tensor(labels(2, 15), "i64")],
                          [tensor(3 * normal(8)), tensor(labels(2, 8), "i64")]),
        "shaped": dataset("binary_shaped", [tensor(uniform(3, 4)), tensor(labels(2, 3, 4), "i64")],
                          [tensor(uniform(2, 4)), tensor(labels(2, 2, 4), "i64")]),
        "ignored": dataset("binary_ignored", [tensor(uniform(9)), tensor([0, 1, -1, 1, 1, -1, 0, 0, 1], "i64")]),
        "all_ignored": dataset("binary_all_ignored", [tensor([0.2, 0.9]), tensor([-1, -1], "i64")],
                               [tensor([0.2, 0.9, 0.4]), tensor([-1, 1, 0], "i64")]),
        "positives": dataset("binary_positives_only", [tensor([0.2, 0.9, 0.7]), tensor([1, 1, 1], "i64")]),
        "negatives": dataset("binary_negatives_only", [tensor([0.2, 0.9, 0.7]), tensor([0, 0, 0], "i64")]),
        "low": dataset("binary_low_negatives", [tensor([0.2, 0.3]), tensor([0, 0], "i64")]),
        "ties": dataset("binary_all_ties", [tensor([0.5] * 6), tensor([0, 1, 1, 0, 1, 0], "i64")]),
        "some_ties": dataset("binary_some_ties", [tensor([0.25, 0.25, 0.75, 0.75, 0.75, 0.5, 0.5, 1.0, 0.0]),
                                                  tensor([0, 1, 1, 0, 1, 0, 1, 1, 0], "i64")]),
        "perfect": dataset("binary_perfect", [tensor([0.1, 0.2, 0.9, 0.8]), tensor([0, 0, 1, 1], "i64")]),
        "inverse": dataset("binary_inverse", [tensor([0.9, 0.8, 0.1, 0.2]), tensor([0, 0, 1, 1], "i64")]),
        "i32": dataset("binary_target_i32", [tensor(uniform(8), "f32"), tensor(labels(2, 8), "i32")]),
    }
    decided = {
        "labels": dataset("binary_labels", [tensor(labels(2, 12), "i64"), tensor(labels(2, 12), "i64")]),
        # The peer takes any NaN as a sign of logits; these are logits, so that both agree.
        "nan": dataset("binary_nan", [tensor([NAN, 2.0, -1.0, 3.0]), tensor([1, 1, 0, 0], "i64")]),
    }
    return scores, decided


def binary():
    scores, decided = binary_data()
    wrong = [dataset("binary_label_two", [tensor([0.1, 0.9]), tensor([0, 2], "i64")]),
             dataset("binary_shapes_differ", [tensor([0.1, 0.9]), tensor([0, 1, 1], "i64")])]
    empty = dataset("binary_empty", [tensor([]), tensor([], "i64")])
    none = dataset("binary_none")
    for stat in STATS:
        for key, data in {**scores, **decided}.items():
            options = {"ignore_index": -1} if "ignored" in key else {}
            # Batches of which no sample counts contribute nothing; they are not an error.
            case(data, f"Binary{stat}", **options)
        for data in wrong:
            case(data, f"Binary{stat}")
        case(scores["batches"], f"Binary{stat}", threshold=0.3)
        case(scores["f32"], f"Binary{stat}", threshold=0.75)
        nothing = [0, 0, 0, 0, 0] if stat == "StatScores" else 0.0
        case(empty, f"Binary{stat}", ours=nothing, ours_forward=[nothing])  # the peer fails to reshape an empty tensor
        case(none, f"Binary{stat}")
    for stat in WITH_ZERO_DIVISION:
        for key in ("negatives", "positives", "low", "plain"):
            case(scores[key], f"Binary{stat}", zero_division=1)
    for beta in (0.5, 2.0):
        for key in ("plain", "batches", "logits", "low"):
            case(scores[key], "BinaryFBetaScore", beta=beta)
    for key in ("plain", "batches", "f32", "logits", "shaped", "negatives"):
        for normalize in ("none", "true", "pred", "all"):
            case(scores[key], "BinaryConfusionMatrix", normalize=normalize)
        case(scores[key], "BinaryCohenKappa")
    for key in ("plain", "batches", "f32", "logits", "shaped", "perfect", "inverse"):
        case(scores[key], "BinaryMatthewsCorrCoef")
    case(scores["ignored"], "BinaryConfusionMatrix", ignore_index=-1)
    case(empty, "BinaryConfusionMatrix", ours=[[0, 0], [0, 0]], ours_forward=[[[0, 0], [0, 0]]])
    for key, data in scores.items():
        options = {"ignore_index": -1} if "ignored" in key else {}
        nothing = [0.0] if key == "all_ignored" else None  # no sample at all: as for one class alone
        for curve in ("BinaryAUROC", "BinaryAveragePrecision"):
            case(data, curve, ours_forward=nothing, **options)
            for thresholds in (5, [0.125, 0.5, 0.625]):
                case(data, curve, thresholds=thresholds, **options)
    for key in ("plain", "batches", "f32", "logits", "positives", "negatives", "some_ties"):
        for max_fpr in (0.25, 0.5, 1.0):
            case(scores[key], "BinaryAUROC", max_fpr=max_fpr)
        case(scores[key], "BinaryAUROC", max_fpr=0.5, thresholds=9)
    for data in wrong:  # the peer does not check these
        case(data, "BinaryAUROC", ours="throws", ours_forward=["throws"])
    case(empty, "BinaryAUROC", ours=0.0, ours_forward=[0.0])
    case(empty, "BinaryAveragePrecision", ours=0.0, ours_forward=[0.0])


def multiclass_data():
    def batch(n, dtype="f64", classes=4):
        return [tensor(distribution(n, classes), dtype), tensor(labels(classes, n), "i64")]

    return {
        "batches": dataset("classes_batches", batch(25), batch(1), batch(14)),
        "f32": dataset("classes_f32", batch(30, "f32"), batch(11, "f32")),
        "f16": dataset("classes_f16", batch(12, "f16")),
        "bf16": dataset("classes_bf16", batch(12, "bf16")),
        "logits": dataset("classes_logits", [tensor(normal(15, 4)), tensor(labels(4, 15), "i64")],
                          [tensor(normal(8, 4)), tensor(labels(4, 8), "i64")]),
        "shaped": dataset("classes_shaped", [tensor(distribution(3, 4, 5)), tensor(labels(4, 3, 5), "i64")],
                          [tensor(distribution(2, 4, 5)), tensor(labels(4, 2, 5), "i64")]),
        "ignored": dataset("classes_ignored", [tensor(distribution(8, 4)), tensor([0, 1, -1, 3, 3, -1, 2, 0], "i64")]),
        "absent": dataset("classes_absent", [tensor(distribution(9, 4)), tensor([0, 1, 1, 0, 3, 3, 0, 1, 3], "i64")]),
        "one": dataset("classes_only_one", [tensor(distribution(5, 4)), tensor([2] * 5, "i64")]),
    }


def multiclass():
    doc = dataset("classes", [tensor(MULTICLASS[0]), tensor(MULTICLASS[1], "i64")])
    data = multiclass_data()
    decided = {
        "labels": dataset("classes_labels", [tensor(labels(4, 20), "i64"), tensor(labels(4, 20), "i64")],
                          [tensor(labels(4, 6), "i64"), tensor(labels(4, 6), "i64")]),
        "never": dataset("classes_never", [tensor([0, 1, 3, 3, 0], "i64"), tensor([0, 1, 3, 0, 1], "i64")]),
        "ties": dataset("classes_ties", [tensor([[.3, .3, .2, .2], [.1, .4, .4, .1]]), tensor([1, 1], "i64")]),
        "i32": dataset("classes_i32", [tensor(labels(4, 9), "i32"), tensor(labels(4, 9), "i32")]),
    }
    # At most five labels pass the peer's check; the fourth would be outside the matrix.
    wrong = [dataset("classes_label_five", [tensor([0, 1, 2, 5], "i64"), tensor([0, 1, 2, 5], "i64")]),
             dataset("classes_shapes_differ", [tensor([0, 1], "i64"), tensor([0, 1, 1], "i64")]),
             dataset("classes_too_few_scores", [tensor(distribution(4, 3)), tensor([0, 1, 2, 0], "i64")])]
    empty = dataset("classes_empty", [torch.zeros(0, 4, dtype=torch.float64), tensor([], "i64")])
    none = dataset("classes_none")
    for stat in STATS:
        metric = f"Multiclass{stat}"
        for average in AVERAGES:
            case(doc, metric, num_classes=3, average=average)
            for key in ("batches", "logits", "absent", "labels", "never"):
                case({**data, **decided}[key], metric, num_classes=4, average=average)
            if stat in ("Accuracy", "Precision", "F1Score", "Specificity", "JaccardIndex"):
                case(data["ignored"], metric, num_classes=4, average=average, ignore_index=-1)
                case(data["batches"], metric, num_classes=4, average=average, ignore_index=2)
            if stat in ("Accuracy", "Precision", "Recall", "F1Score", "Specificity"):
                case(data["batches"], metric, num_classes=4, average=average, top_k=2)
                case(data["absent"], metric, num_classes=4, average=average, top_k=3)
        for key in ("f32", "f16", "bf16", "shaped", "one", "ties", "i32"):
            case({**data, **decided}[key], metric, num_classes=4)
        for average in ("micro", "none"):
            nothing = 0.0 if average == "micro" else [0.0] * 4
            if stat == "StatScores":
                nothing = [0] * 5 if average == "micro" else [[0] * 5] * 4
            case(empty, metric, num_classes=4, average=average, ours=nothing, ours_forward=[nothing])
        case(none, metric, num_classes=4, average="micro")
        for at in wrong:
            # The peer's micro averages ignore the label; ours are kept by class.
            case(at, metric, num_classes=4, average="macro", ours="throws", ours_forward=["throws"])
    for average in AVERAGES:
        for k in (2, 3, 4):
            case(data["f32"], "MulticlassAccuracy", num_classes=4, average=average, top_k=k)
        for stat in WITH_ZERO_DIVISION:
            case(data["absent"], f"Multiclass{stat}", num_classes=4, average=average, zero_division=1)
            case(decided["never"], f"Multiclass{stat}", num_classes=4, average=average, zero_division=1)
        for beta in (0.5, 2.0):
            case(doc, "MulticlassFBetaScore", num_classes=3, beta=beta, average=average)
            case(data["absent"], "MulticlassFBetaScore", num_classes=4, beta=beta, average=average)
    for key in ("batches", "f32", "logits", "shaped", "absent", "labels"):
        for normalize in ("none", "true", "pred", "all"):
            case({**data, **decided}[key], "MulticlassConfusionMatrix", num_classes=4, normalize=normalize)
        for weights in ("none", "linear", "quadratic"):
            case({**data, **decided}[key], "MulticlassCohenKappa", num_classes=4, weights=weights)
        case({**data, **decided}[key], "MulticlassMatthewsCorrCoef", num_classes=4)
    case(data["ignored"], "MulticlassConfusionMatrix", num_classes=4, ignore_index=-1)
    case(empty, "MulticlassConfusionMatrix", num_classes=4)
    for at in wrong:
        case(at, "MulticlassConfusionMatrix", num_classes=4, ours="throws", ours_forward=["throws"])
    for key in ("shaped", "f32", "ignored"):
        options = {"ignore_index": -1} if key == "ignored" else {}
        case(data[key], "MulticlassExactMatch", num_classes=4, **options)
    multiclass_curves(doc, data, wrong[2])
    losses(data)


def multiclass_curves(doc, data, wrong):
    for curve in ("MulticlassAUROC", "MulticlassAveragePrecision"):
        for average in AVERAGES[1:]:
            for thresholds in (None, 5, [0.0625, 0.375, 0.625]):
                case(doc, curve, num_classes=3, average=average, thresholds=thresholds)
                for key in ("batches", "logits", "absent", "shaped", "one"):
                    case(data[key], curve, num_classes=4, average=average, thresholds=thresholds)
        for key in ("f32", "f16", "bf16"):
            case(data[key], curve, num_classes=4)
        case(data["ignored"], curve, num_classes=4, ignore_index=-1)
        case(data["ignored"], curve, num_classes=4, ignore_index=-1, thresholds=5)
        case(wrong, curve, num_classes=4)


def losses(data):
    tokens = dataset("tokens", [tensor(normal(2, 5, 6)), tensor(labels(6, 2, 5), "i64")],
                     [tensor(normal(1, 7, 6)), tensor(labels(6, 1, 7), "i64")])
    padded = labels(6, 3, 4)
    padded[0, 2:] = -100
    ignored = dataset("tokens_ignored", [tensor(normal(3, 4, 6)), tensor(padded, "i64")])
    f32 = dataset("tokens_f32", [tensor(normal(2, 5, 6), "f32"), tensor(labels(6, 2, 5), "i64")])
    f16 = dataset("tokens_f16", [tensor(normal(2, 5, 6), "f16"), tensor(labels(6, 2, 5), "i64")])
    for at in (tokens, f32, f16):
        case(at, "Perplexity")
        case(at, "Perplexity", ignore_index=2)
    case(ignored, "Perplexity", ignore_index=-100)
    case(ignored, "Perplexity")
    case(dataset("tokens_shapes_differ", [tensor(normal(2, 3, 6)), tensor(labels(6, 2, 4), "i64")]), "Perplexity")
    case(dataset("tokens_none"), "Perplexity")
    for key in ("logits", "shaped", "f32", "absent"):
        case(data[key], "CrossEntropy")
        case(data[key], "CrossEntropy", ignore_index=1)
        case(data[key], "CrossEntropy", probabilities=True)
    case(data["ignored"], "CrossEntropy", ignore_index=-1)
    for at in ("binary", "binary_batches", "binary_f32"):
        case(at, "CrossEntropy", probabilities=True)
    case("binary_logits", "CrossEntropy")


class CrossEntropy(torchmetrics.Metric):
    """Log loss by torch itself, for torchmetrics has none."""
    full_state_update = False

    def __init__(self, probabilities=False, ignore_index=None):
        super().__init__()
        self.probabilities, self.ignore_index = probabilities, ignore_index
        self.add_state("total", torch.tensor(0.0), "sum")
        self.add_state("count", torch.tensor(0.0), "sum")

    def update(self, preds, target):
        loss = torch.nn.functional
        if preds.ndim == target.ndim:
            of = loss.binary_cross_entropy if self.probabilities else loss.binary_cross_entropy_with_logits
            self.total += of(preds, target.double(), reduction="sum")
            self.count += target.numel()
            return
        of = (lambda p, *rest, **more: loss.nll_loss(p.log(), *rest, **more)) if self.probabilities else loss.cross_entropy
        ignored = -100 if self.ignore_index is None else self.ignore_index
        self.total += of(preds, target, reduction="sum", ignore_index=ignored)
        self.count += (target != ignored).sum()

    def compute(self):
        return self.total / self.count


CLASSES["CrossEntropy"] = CrossEntropy


def multilabel():
    def batch(n, dtype="f64"):
        return [tensor(uniform(n, 3), dtype), tensor(labels(2, n, 3), "i64")]

    with_ignored = labels(2, 7, 3)
    with_ignored[1, 2] = with_ignored[4, 0] = with_ignored[5, 0] = -1
    data = {
        "doc": dataset("labels", [tensor(MULTILABEL[0]), tensor(MULTILABEL[1], "i64")]),
        "batches": dataset("labels_batches", batch(16), batch(1), batch(9)),
        "logits": dataset("labels_logits", [tensor(normal(9, 3)), tensor(labels(2, 9, 3), "i64")]),
        "absent": dataset("labels_absent", [tensor(uniform(5, 3)),
                                            tensor([[0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0, 0], [0, 1, 0]], "i64")]),
        "f32": dataset("labels_f32", batch(9, "f32"), batch(4, "f32")),
        "shaped": dataset("labels_shaped", [tensor(uniform(4, 3, 2)), tensor(labels(2, 4, 3, 2), "i64")]),
        "ignored": dataset("labels_ignored", [tensor(uniform(7, 3)), tensor(with_ignored, "i64")]),
    }
    decided = dataset("labels_decided", [tensor(labels(2, 6, 3), "i64"), tensor(labels(2, 6, 3), "i64")])
    wrong = [dataset("labels_two", [tensor([[0.1, 0.9, 0.3]]), tensor([[0, 2, 1]], "i64")]),
             dataset("labels_four", [tensor(uniform(2, 4)), tensor(labels(2, 2, 4), "i64")])]
    empty = dataset("labels_empty", [torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, 3, dtype=torch.int64)])
    for stat in STATS:
        metric = f"Multilabel{stat}"
        for average in AVERAGES:
            for key in ("doc", "batches", "logits", "absent"):
                case(data[key], metric, num_labels=3, average=average)
            case(data["ignored"], metric, num_labels=3, average=average, ignore_index=-1)
        for at in (data["f32"], data["shaped"], decided):
            case(at, metric, num_labels=3)
        case(data["batches"], metric, num_labels=3, threshold=0.7)
        nothing = [0] * 5 if stat == "StatScores" else 0.0
        case(empty, metric, num_labels=3, average="micro", ours=nothing, ours_forward=[nothing])
        for at in wrong:
            case(at, metric, num_labels=3)
    for average in AVERAGES:
        case(data["absent"], "MultilabelF1Score", num_labels=3, average=average, zero_division=1)
        case(data["batches"], "MultilabelFBetaScore", num_labels=3, beta=2.0, average=average)
    for key, at in data.items():
        options = {"ignore_index": -1} if key == "ignored" else {}
        case(at, "MultilabelExactMatch", num_labels=3, **options)
        case(at, "MultilabelConfusionMatrix", num_labels=3, **options)
        case(at, "MultilabelMatthewsCorrCoef", num_labels=3, **options)
        for curve in ("MultilabelAUROC", "MultilabelAveragePrecision"):
            for average in AVERAGES:
                for thresholds in (None, 5):
                    case(at, curve, num_labels=3, average=average, thresholds=thresholds, **options)
    for normalize in ("true", "pred", "all"):
        case(data["absent"], "MultilabelConfusionMatrix", num_labels=3, normalize=normalize)


def main():
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    aggregations()
    regressions()
    binary()
    multiclass()
    multilabel()
    far_off_regressions()
    used = {case["data"] for case in cases}
    table = {
        "versions": {"torchmetrics": torchmetrics.__version__, "torch": torch.__version__.split("+")[0],
                     "numpy": numpy.__version__, "python": platform.python_version()},
        "datasets": {name: [[stored(x) for x in batch] for batch in batches]
                     for name, batches in datasets.items() if name in used},
    }
    with open(sys.argv[1], "w", encoding="ascii") as file:
        lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases)
        head = json.dumps(table, separators=(",", ":"), allow_nan=False).replace('],"', '],\n"')
        file.write(f'{head[:-1]},\n"cases":[\n{lines}\n]}}\n')
    print(f"{len(cases)} cases of {len({c['metric'] for c in cases})} metrics")


main()
