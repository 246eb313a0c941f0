"""Merkle trees as transparency logs use them (RFC 6962, section 2.1).

    leaf = SHA-256(0x00 ‖ entry)          node = SHA-256(0x01 ‖ left ‖ right)
    root = the node over the left 2^k leaves and the rest, 2^k the largest power of two below the size

A root fixes every entry and their order. An inclusion proof shows in log₂(n) hashes that one entry is under a root; a
consistency proof shows that a later root extends an earlier one. Making a proof costs O(n) hashes: it is made rarely.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of one entry."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """Grows by one leaf hash at a time and keeps log₂(n) of them: the roots of its perfect subtrees, largest first.

    >>> tree = Tree([leaf_hash(b"a"), leaf_hash(b"b")])
    >>> tree.root() == node_hash(leaf_hash(b"a"), leaf_hash(b"b"))
    True
    """

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        """Start with these leaf hashes."""
        self.size = 0
        self._subtrees: list[bytes] = []
        for leaf in leaves:
            self.add(leaf)

    def add(self, leaf: bytes) -> None:
        """Append a leaf hash; as in binary counting, every trailing 1 of the size is a subtree to be merged."""
        subtrees, carry = self._subtrees, self.size
        while carry & 1:
            leaf = node_hash(subtrees.pop(), leaf)
            carry >>= 1
        subtrees.append(leaf)
        self.size += 1

    def root(self) -> bytes:
        """Return the root; that of no leaves is the hash of nothing."""
        if not self._subtrees:
            return hashlib.sha256().digest()
        *rest, node = self._subtrees
        for subtree in reversed(rest):
            node = node_hash(subtree, node)
        return node


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the siblings on the way from leaf `index` to the root, lowest first."""
    proof: list[bytes] = []
    low, high = 0, len(leaves)
    if not 0 <= index < high:
        raise IndexError(f"a tree of {high} leaves has no leaf {index}")
    while high - low > 1:
        middle = low + _split(high - low)
        if index < middle:
            proof.append(Tree(leaves[middle:high]).root())
            high = middle
        else:
            proof.append(Tree(leaves[low:middle]).root())
            low = middle
    return proof[::-1]


def all_proofs(leaves: Sequence[bytes]) -> tuple[bytes, list[bytes]]:
    """Return the root, and for every leaf its inclusion proof, the hashes joined; O(n) hashes for all of them.

    >>> a, b, c = (leaf_hash(name) for name in (b"a", b"b", b"c"))
    >>> root, (_, _, last) = all_proofs([a, b, c])
    >>> last == node_hash(a, b) and root == node_hash(last, c)
    True
    """
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [node_hash(left, right) for left, right in zip(below[::2], below[1::2], strict=False)]
        levels.append([*above, below[-1]] if len(below) % 2 else above)  # one without a sibling goes up as it is
    proofs = [b""]
    for level in reversed(levels[:-1]):
        siblings = [node for pair in zip(level[1::2], level[::2], strict=False) for node in pair]
        siblings += [b""] * (len(level) % 2)
        proofs = [sibling + proofs[i >> 1] for i, sibling in enumerate(siblings)]
    return levels[-1][0], proofs


def included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Check an inclusion proof: the siblings, with the leaf, make the root."""
    return root_from(leaf, index, size, proof) == root


def root_from(leaf: bytes, index: int, size: int, proof: Sequence[bytes]) -> bytes | None:
    """Return the root that the siblings make with the leaf; None if they are too few or too many."""
    if not 0 <= index < size:
        return None
    node, last = leaf, size - 1
    for sibling in proof:
        if last == 0:
            return None
        if index & 1 or index == last:
            node = node_hash(sibling, node)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        index, last = index >> 1, last >> 1
    return node if last == 0 else None


def consistency_proof(leaves: Sequence[bytes], old: int) -> list[bytes]:
    """Return the hashes from which both the root of the first `old` leaves and that of all can be made."""
    if not 0 < old <= len(leaves):
        raise IndexError(f"a tree of {len(leaves)} leaves does not extend one of {old}")
    proof: list[bytes] = []
    low, high, whole = 0, len(leaves), True  # whole: the old tree is this very subtree, so its root is known already
    while old != high:
        middle = low + _split(high - low)
        if old <= middle:
            proof.append(Tree(leaves[middle:high]).root())
            high = middle
        else:
            proof.append(Tree(leaves[low:middle]).root())
            low, whole = middle, False
    if not whole:
        proof.append(Tree(leaves[low:high]).root())
    return proof[::-1]


def consistent(old: int, new: int, old_root: bytes, new_root: bytes, proof: Sequence[bytes]) -> bool:
    """Check a consistency proof (RFC 9162, section 2.1.4.2)."""
    if not 0 < old <= new:
        return False
    if old == new:
        return old_root == new_root and not proof
    path = [old_root, *proof] if old & (old - 1) == 0 else list(proof)
    if not path:
        return False
    index, last = old - 1, new - 1
    while index & 1:
        index, last = index >> 1, last >> 1
    first = second = path[0]
    for sibling in path[1:]:
        if last == 0:
            return False
        if index & 1 or index == last:
            first, second = node_hash(sibling, first), node_hash(sibling, second)
            while not index & 1 and index:
                index, last = index >> 1, last >> 1
        else:
            second = node_hash(second, sibling)
        index, last = index >> 1, last >> 1
    return last == 0 and first == old_root and second == new_root


def _split(size: int) -> int:
    """Return the largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1
