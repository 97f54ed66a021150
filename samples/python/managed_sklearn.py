#!/usr/bin/env python3
"""managed_sklearn.py: MiniBatchKMeans learns from, and labels, a managed array.

    python3 managed_sklearn.py [--size MiB]

The array is four times larger than memory may be.

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""
import sys

import resident

SIZE, TRACE = resident.arguments("clusters of an array that does not fit into memory")

import numpy  # noqa: E402
try:
    from sklearn.cluster import MiniBatchKMeans  # noqa: E402
except ImportError:
    print("nothing to do: scikit-learn is not installed")
    sys.exit(77)
import usm  # noqa: E402

FEATURES, CLUSTERS, BATCH = 64, 5, 8192
ROWS = SIZE // 8 // FEATURES


def main():
    random = numpy.random.default_rng(1)
    centers = random.uniform(-100, 100, (CLUSTERS, FEATURES))
    model = MiniBatchKMeans(CLUSTERS, n_init=3, random_state=1)
    model.fit(centers)  # the packages load what they need before the watch
    model = MiniBatchKMeans(CLUSTERS, n_init=3, random_state=1)
    usm.managed(1)
    with resident.Watch(SIZE, TRACE) as watch:
        points = usm.managed((ROWS, FEATURES), "f8")
        batches = numpy.array_split(points, max(1, ROWS // BATCH))
        for batch in batches:
            batch[:] = random.standard_normal(batch.shape)
            batch += centers[numpy.arange(len(batch)) % CLUSTERS]

        for batch in batches:
            model.partial_fit(batch)
        labels = model.predict(points)

        found = model.cluster_centers_[labels[:CLUSTERS]]
        is_right = bool(abs(found - centers).max() < 1)
        for batch, its in zip(batches, numpy.array_split(labels, len(batches))):
            is_right &= bool((its == labels[numpy.arange(len(batch)) % CLUSTERS]).all())
    return watch.report(is_right)


if __name__ == "__main__":
    sys.exit(main())
