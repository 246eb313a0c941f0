"""The loaders read the documented formats; the files are tiny ones, written here."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from mempair_db.bench import data
from mempair_db.errors import InvalidParameter
from mempair_db.pair.calibration import Parameters


def write(file: Path, text: str) -> None:
    file.write_bytes(gzip.compress(text.encode()))


def write_idx(file: Path, array: np.ndarray) -> None:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    file.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    adult = "39, State-gov, 77516, Bachelors, 13, Single, Clerk, None, White, Male, 2174, 0, 40, Cuba, <=50K{dot}\n"
    other = "28, ?, 5, Bachelors, 13, Single, Clerk, None, White, Male, 0, 0, 40, Cuba, >50K{dot}\n"
    write(tmp_path / "adult_train.csv.gz", (adult + other).format(dot="") + "\n")
    write(tmp_path / "adult_test.csv.gz", "|1x3 a note\n" + other.format(dot="."))
    write(tmp_path / "credit_default.csv.gz", "ID,LIMIT_BAL,AGE,default.payment.next.month\n1,20000,24,1\n2,9,30,0\n")
    write(tmp_path / "covtype.csv.gz", "Elevation,Slope,Cover_Type\n2596,3,5\n2590,2,2\n")
    write(tmp_path / "elec2.csv.gz", "period,nswprice,class\n0.0,0.05,1\n0.5,0.06,0\n1.0,0.07,0\n")
    for part, labels in (("train", [3, 8, 1, 4]), ("t10k", [8, 3])):
        images = np.full((len(labels), 28, 28), 51)
        write_idx(tmp_path / f"mnist-{part}-images-idx3-ubyte.gz", images)
        write_idx(tmp_path / f"mnist-{part}-labels-idx1-ubyte.gz", np.array(labels))
    return tmp_path


def test_adult_has_numbers_texts_and_its_own_test_set(folder: Path) -> None:
    adult = data.load("adult", folder)
    assert adult.x.tolist()[0] == [39.0, 77516.0, 13.0, 2174.0, 0.0, 40.0]
    assert adult.c[1][0] == "?"
    assert adult.y.tolist() == [-1.0, 1.0]
    assert adult.test is not None
    assert adult.test.y.tolist() == [1.0]  # with a dot, and a first line that is no row
    assert adult.split()[1] is adult.test


def test_credit_drops_the_key_and_covtype_asks_for_the_second_type(folder: Path) -> None:
    credit, covtype = data.load("credit", folder), data.load("covtype", folder)
    assert (credit.x.tolist(), credit.y.tolist()) == ([[20000.0, 24.0], [9.0, 30.0]], [1.0, -1.0])
    assert (covtype.x.tolist(), covtype.y.tolist()) == ([[2596.0, 3.0], [2590.0, 2.0]], [-1.0, 1.0])


def test_a_time_ordered_set_is_never_shuffled(folder: Path) -> None:
    elec2 = data.load("elec2", folder)
    assert elec2.shuffled(7).x.tolist() == elec2.x.tolist()
    assert elec2.shuffled(7, most=2).y.tolist() == [1.0, -1.0]


def test_mnist_is_three_against_eight_or_even_against_odd(folder: Path) -> None:
    three, even = data.load("mnist 3v8", folder), data.load("mnist even/odd", folder)
    assert three.x.shape == (2, 784)
    assert three.x[0, 0] == pytest.approx(0.2)
    assert three.y.tolist() == [1.0, -1.0]
    assert even.y.tolist() == [-1.0, 1.0, -1.0, 1.0]
    assert three.test is not None
    assert three.test.y.tolist() == [-1.0, 1.0]


def test_a_folder_offers_what_it_has(folder: Path, tmp_path: Path) -> None:
    assert set(data.names(folder)) == {"mnist 3v8", "mnist even/odd", "adult", "covtype", "elec2", "credit"}
    (folder / "covtype.csv.gz").unlink()
    assert "covtype" not in data.names(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidParameter, match="none of the known data files"):
        data.names(tmp_path / "empty")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "floats.gz"
    file.write_bytes(gzip.compress(bytes([0, 0, 13, 1, 0, 0, 0, 1, 0, 0, 0, 0])))
    with pytest.raises(InvalidParameter, match=r"floats\.gz is not an IDX file"):
        data.read_idx(file)


@pytest.mark.parametrize("name", data.names(None))
def test_the_bundled_sets_are_encoded_into_the_unit_ball(name: str) -> None:
    rows = data.load(name, None)
    stream = data.encode(rows, Parameters(lam=0.01))
    assert set(np.unique(rows.y)) == {-1.0, 1.0}
    assert len(stream) == len(rows)
    assert np.linalg.norm(stream.X, axis=1).max() <= 1.0 + 1e-12
    assert np.isfinite(stream.X).all()


def test_rows_held_out_were_not_learned() -> None:
    rows = data.rotating(50)
    train, test = rows.split()
    assert len(train) == 40
    assert not {tuple(x) for x in train.x.tolist()} & {tuple(x) for x in test.x.tolist()}
