"""Merkle trees against the definition of RFC 6962, written out recursively, and against changed proofs."""

from __future__ import annotations

import hashlib

import pytest

from mempair_db.ledger import merkle

ENTRIES = [bytes([i]) * (i % 5) + b"entry" for i in range(33)]
LEAVES = [merkle.leaf_hash(entry) for entry in ENTRIES]


def definition(entries: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, as it stands there."""
    if not entries:
        return hashlib.sha256(b"").digest()
    if len(entries) == 1:
        return hashlib.sha256(b"\x00" + entries[0]).digest()
    k = 1
    while 2 * k < len(entries):
        k *= 2
    return hashlib.sha256(b"\x01" + definition(entries[:k]) + definition(entries[k:])).digest()


def changed(node: bytes) -> bytes:
    return bytes([node[0] ^ 1]) + node[1:]


def test_the_root_of_a_published_example_is_the_published_one() -> None:
    """The eight leaves that implementations of Certificate Transparency are tested with."""
    inputs = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
    tree = merkle.Tree(merkle.leaf_hash(bytes.fromhex(text)) for text in inputs)
    assert tree.root().hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"


@pytest.mark.parametrize("size", range(34))
def test_roots_are_those_of_the_definition(size: int) -> None:
    assert merkle.Tree(LEAVES[:size]).root() == definition(ENTRIES[:size])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 20, 33])
def test_every_entry_has_a_proof_and_no_other_entry_fits_it(size: int) -> None:
    leaves, root = LEAVES[:size], definition(ENTRIES[:size])
    for index in range(size):
        proof = merkle.inclusion_proof(leaves, index)
        assert merkle.included(leaves[index], index, size, proof, root)
        assert not merkle.included(leaves[index], index + 1, size, proof, root)
        assert not merkle.included(changed(leaves[index]), index, size, proof, root)
        assert not merkle.included(leaves[index], index, size, [*proof, root], root)
        for i in range(len(proof)):
            broken = [*proof[:i], changed(proof[i]), *proof[i + 1 :]]
            assert not merkle.included(leaves[index], index, size, broken, root)
            assert not merkle.included(leaves[index], index, size, proof[:i] + proof[i + 1 :], root)


@pytest.mark.parametrize("new", [1, 2, 5, 8, 13, 32, 33])
def test_a_longer_tree_is_proved_to_extend_a_shorter_one(new: int) -> None:
    new_root = definition(ENTRIES[:new])
    for old in range(1, new + 1):
        proof, old_root = merkle.consistency_proof(LEAVES[:new], old), definition(ENTRIES[:old])
        assert merkle.consistent(old, new, old_root, new_root, proof)
        assert not merkle.consistent(old, new, changed(old_root), new_root, proof)
        assert not merkle.consistent(old, new, old_root, changed(new_root), proof)
        for i in range(len(proof)):
            assert not merkle.consistent(old, new, old_root, new_root, proof[:i] + proof[i + 1 :])


def test_a_rewritten_beginning_has_no_consistency_proof() -> None:
    rewritten = [merkle.leaf_hash(b"other"), *LEAVES[1:20]]
    root = merkle.Tree(rewritten).root()
    assert not merkle.consistent(10, 20, definition(ENTRIES[:10]), root, merkle.consistency_proof(rewritten, 10))


def test_proofs_of_entries_that_are_not_there_are_refused() -> None:
    with pytest.raises(IndexError):
        merkle.inclusion_proof(LEAVES, 33)
    with pytest.raises(IndexError):
        merkle.consistency_proof(LEAVES, 0)
    assert not merkle.included(LEAVES[0], -1, 1, [], LEAVES[0])
    assert not merkle.consistent(0, 1, LEAVES[0], LEAVES[0], [])
    assert not merkle.consistent(3, 4, LEAVES[0], LEAVES[0], [])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 21, 100])
def test_all_proofs_at_once_are_the_proofs_one_by_one(size: int) -> None:
    leaves = [merkle.leaf_hash(bytes([i])) for i in range(size)]
    root, proofs = merkle.all_proofs(leaves)
    assert root == merkle.Tree(leaves).root()
    for index, proof in enumerate(proofs):
        assert proof == b"".join(merkle.inclusion_proof(leaves, index))
