"""The data sets of the benchmarks: real ones from a folder that the user has, scikit-learn's own where there is none.

    adult            adult_train.csv.gz, adult_test.csv.gz   no header, `?` is missing; last column `>50K` or `<=50K`
    credit           credit_default.csv.gz                   header; `ID` dropped; target default.payment.next.month
    covtype          covtype.csv.gz                          header; Cover_Type 2 against the rest
    elec2            elec2.csv.gz                            header; target `class`; time-ordered: never shuffled
    mnist 3v8        mnist-*-ubyte.gz                        IDX; 3 against 8
    mnist even/odd   the same files
    breast_cancer, digits 3v8, digits even/odd, wine         bundled with scikit-learn, for runs without a folder

Rows are encoded as a model encodes them: constants from the first rows, the intercept, the unit ball. Pixels share one
scale already, so images are not standardised; an image is divided by the radius alone.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc

from mempair_db.bench.report import extra
from mempair_db.errors import InvalidParameter
from mempair_db.offline.stream import Stream
from mempair_db.pair.calibration import Epoch, Parameters, calibrate
from mempair_db.pair.encode import Encoding as Integers
from mempair_db.pair.encode import Number
from mempair_db.pair.encoding import Encoding, Matrix
from mempair_db.pair.events import INSERT
from mempair_db.pair.state import Vector

CALIBRATION: Final = 2_000
"""Rows that fix the encoding, or a quarter of the set if that is less."""

Loader = Callable[[Path], "Rows"]


@dataclass(frozen=True)
class Rows:
    """A labelled set as it is stored; `test` is its own test set, if it has one."""

    name: str
    x: Matrix
    y: Vector
    c: list[tuple[str, ...]]
    in_order: bool = False
    image: bool = False
    test: Rows | None = None

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.x)

    def take(self, places: npt.NDArray[np.int64]) -> Rows:
        """Return some of the rows, in this order."""
        texts = [self.c[i] for i in places.tolist()] if self.c else []
        return replace(self, x=self.x[places], y=self.y[places], c=texts)

    def shuffled(self, seed: int, most: int | None = None) -> Rows:
        """Return at most so many rows in another order for each seed; a time-ordered set keeps its order."""
        if self.in_order:
            return self.take(np.arange(min(len(self), most or len(self))))
        return self.take(np.random.default_rng(seed).permutation(len(self))[:most])

    def split(self) -> tuple[Rows, Rows]:
        """Return rows to learn and rows to hold out: its own test set, or every fifth row."""
        if self.test is not None:
            return self, self.test
        held = np.arange(len(self)) % 5 == 4
        return self.take(np.flatnonzero(~held)), self.take(np.flatnonzero(held))


def names(folder: Path | None) -> list[str]:
    """Return the sets that are there."""
    if folder is None:
        return list(_BUNDLED)
    found = [name for name, (files, _) in _FILES.items() if all((folder / file).exists() for file in files)]
    if not found:
        raise InvalidParameter(
            f"{folder} has none of the known data files.", remedy="Leave --data out to use scikit-learn's sets."
        )
    return found


def load(name: str, folder: Path | None) -> Rows:
    """Read a set."""
    if folder is None:
        return _bundled(name)
    return _FILES[name][1](folder)


def encode(rows: Rows, parameters: Parameters) -> Stream:
    """Encode rows as a model would, with the epoch's constants from the first of them."""
    first = min(CALIBRATION, max(1, len(rows) // 4))
    declared: list[list[str] | None] = [None] * (len(rows.c[0]) if rows.c else 0)
    epoch = calibrate(parameters, rows.x[:first], rows.c[:first], rows.y[:first], declared=declared)
    if rows.image:
        epoch = _unscaled(epoch, rows.x[:first])
    return with_epoch(rows, parameters, epoch)


def with_epoch(rows: Rows, parameters: Parameters, epoch: Epoch) -> Stream:
    """Encode rows with constants that are there already."""
    X, y = epoch.encoding.encode(rows.x, rows.c), epoch.encoding.encode_target(rows.y)
    return Stream(parameters, epoch, np.full(len(rows), INSERT, np.int16), X, y, whole=True)


def rotating(n: int, d: int = 10, turns: float = 1.0, seed: int = 0) -> Rows:
    """Invent a stream whose best model turns steadily in a plane: a concept that drifts and never comes to rest."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    angle = 2.0 * np.pi * turns * np.arange(n) / n
    margin = np.cos(angle) * x[:, 0] + np.sin(angle) * x[:, 1] + 0.3 * rng.normal(size=n)
    return Rows("rotating", x, np.where(margin > 0.0, 1.0, -1.0), [], in_order=True)


def _unscaled(epoch: Epoch, x: Matrix) -> Epoch:
    radius = float(np.median(np.sqrt((x * x).sum(axis=1) + 1.0)))
    return replace(epoch, encoding=Encoding(Integers((Number(),) * x.shape[1]), radius))


def _table(file: Path, header: bool = True) -> pa.Table:
    return pc.read_csv(file, read_options=pc.ReadOptions(autogenerate_column_names=not header))


def _numbers(table: pa.Table, columns: list[str]) -> Matrix:
    return np.column_stack([table[column].to_numpy().astype(np.float64) for column in columns])


def _signs(positive: npt.NDArray[np.bool_]) -> Vector:
    return np.where(positive, 1.0, -1.0)


def _adult(folder: Path) -> Rows:
    train, test = (_adult_part(folder / f"adult_{part}.csv.gz") for part in ("train", "test"))
    return replace(train, test=test)


def _adult_part(file: Path) -> Rows:
    numeric = (0, 2, 4, 10, 11, 12)
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        cells = [[cell.strip() for cell in line.split(",")] for line in lines if line.count(",") == 14]
    x = np.array([[float(row[j]) for j in numeric] for row in cells])
    c = [tuple(row[j] for j in range(14) if j not in numeric) for row in cells]  # "?" is a category like any other
    return Rows("adult", x, _signs(np.array([row[14].startswith(">50K") for row in cells])), c)


def _credit(folder: Path) -> Rows:
    table, target = _table(folder / "credit_default.csv.gz"), "default.payment.next.month"
    columns = [name for name in table.column_names if name not in ("ID", target)]
    return Rows("credit", _numbers(table, columns), _signs(table[target].to_numpy() == 1), [])


def _covtype(folder: Path) -> Rows:
    table = _table(folder / "covtype.csv.gz")
    columns = [name for name in table.column_names if name != "Cover_Type"]
    return Rows("covtype", _numbers(table, columns), _signs(table["Cover_Type"].to_numpy() == 2), [])


def _elec2(folder: Path) -> Rows:
    table = _table(folder / "elec2.csv.gz")
    columns = [name for name in table.column_names if name != "class"]
    return Rows("elec2", _numbers(table, columns), _signs(table["class"].to_numpy() == 1), [], in_order=True)


def read_idx(file: Path) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in IDX format: magic 0, 0, 8, dimensions; their sizes, big-endian; the bytes."""
    data = gzip.decompress(file.read_bytes())
    if data[:3] != b"\x00\x00\x08":
        raise InvalidParameter(f"{file.name} is not an IDX file of bytes.")
    shape = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape.astype(int))


def _mnist(task: str) -> Loader:
    def read(folder: Path) -> Rows:
        train, test = (_mnist_part(folder, part, task) for part in ("train", "t10k"))
        return replace(train, test=test)

    return read


def _mnist_part(folder: Path, part: str, task: str) -> Rows:
    images = read_idx(folder / f"mnist-{part}-images-idx3-ubyte.gz")
    labels = read_idx(folder / f"mnist-{part}-labels-idx1-ubyte.gz")
    return _digits(f"mnist {task}", images.reshape(len(images), -1) / 255.0, labels, task)


def _digits(name: str, x: Matrix, labels: npt.NDArray[np.integer], task: str) -> Rows:
    kept = np.isin(labels, (3, 8)) if task == "3v8" else np.ones(len(labels), bool)
    positive = labels == 3 if task == "3v8" else labels % 2 == 0
    return Rows(name, x[kept], _signs(positive[kept]), [], image=True)


def _bundled(name: str) -> Rows:
    sets = extra("sklearn.datasets")
    if name.startswith("digits"):
        x, labels = sets.load_digits(return_X_y=True)
        return _digits(name, x / 16.0, labels, name.removeprefix("digits "))
    x, labels = getattr(sets, f"load_{name}")(return_X_y=True)
    return Rows(name, x, _signs(labels == 1), []).shuffled(0)  # wine is sorted by class


_MNIST: Final = tuple(f"mnist-{p}-{k}-ubyte.gz" for p in ("train", "t10k") for k in ("images-idx3", "labels-idx1"))
_FILES: Final[dict[str, tuple[tuple[str, ...], Loader]]] = {
    "mnist 3v8": (_MNIST, _mnist("3v8")),
    "mnist even/odd": (_MNIST, _mnist("even/odd")),
    "adult": (("adult_train.csv.gz", "adult_test.csv.gz"), _adult),
    "covtype": (("covtype.csv.gz",), _covtype),
    "elec2": (("elec2.csv.gz",), _elec2),
    "credit": (("credit_default.csv.gz",), _credit),
}
_BUNDLED: Final = ("digits 3v8", "digits even/odd", "breast_cancer", "wine")
