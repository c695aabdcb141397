"""Reference of the batch plan, slow and from the definitions: one dict for each node of the token trie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

CHUNK = 64


@dataclass
class Node:
    """One token of the trie; children in the order of first appearance."""

    token: int
    depth: int
    parent: Node | None
    children: dict[int, Node] = field(default_factory=dict)
    row: int = -1


@dataclass
class Chunk:
    """Nodes of a path from a block's start to the block's end or a leaf of the trie."""

    nodes: list[Node]
    parent: int = -1
    children: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Segment:
    chunks: tuple[int, ...]
    level: int
    parent: tuple[int, ...]  # chunks of the parent segment, () at a root
    branches: bool


@dataclass(frozen=True)
class Plan:
    token: list[int]
    depth: list[int]
    parent_row: list[int]
    leaf_row: list[int]
    chunk_rows: list[list[int]]
    chunk_parent: list[int]
    owner: list[int]  # of a row: the first chunk that holds it
    segments: list[Segment]


def build_plan(sequences: Sequence[Sequence[int]], share: bool = True) -> Plan:
    roots, paths = build_trie(sequences, share)
    rows = depth_first(roots)
    for row, node in enumerate(rows):
        node.row = row
    chunks = build_chunks(paths)
    owner = [-1] * len(rows)
    for index, chunk in enumerate(chunks):
        for node in chunk.nodes:
            if owner[node.row] < 0:
                owner[node.row] = index
    return Plan(
        token=[node.token for node in rows],
        depth=[node.depth for node in rows],
        parent_row=[-1 if node.parent is None else node.parent.row for node in rows],
        leaf_row=[path[-1].row for path in paths],
        chunk_rows=[[node.row for node in chunk.nodes] for chunk in chunks],
        chunk_parent=[chunk.parent for chunk in chunks],
        owner=owner,
        segments=build_segments(chunks),
    )


def build_trie(sequences: Sequence[Sequence[int]], share: bool) -> tuple[list[Node], list[list[Node]]]:
    """The first nodes, and the nodes along each sequence."""
    roots: list[Node] = []
    first: dict[int, Node] = {}
    paths: list[list[Node]] = []
    for sequence in sequences:
        path: list[Node] = []
        siblings = first if share else {}
        for depth, token in enumerate(sequence):
            if token not in siblings:
                siblings[token] = Node(token, depth, path[-1] if path else None)
                if not path:
                    roots.append(siblings[token])
            path.append(siblings[token])
            siblings = path[-1].children
        paths.append(path)
    return roots, paths


def depth_first(roots: list[Node]) -> list[Node]:
    order: list[Node] = []
    pending = roots[::-1]
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(reversed(node.children.values()))
    return order


def build_chunks(paths: list[list[Node]]) -> list[Chunk]:
    by_end: dict[int, list[Node]] = {}
    for path in paths:
        for begin in range(0, len(path), CHUNK):
            nodes = path[begin : begin + CHUNK]
            if len(nodes) == CHUNK or not nodes[-1].children:
                by_end[nodes[-1].row] = nodes
    # Depth-first order of the ends is depth-first order of the chunks.
    chunks = [Chunk(by_end[row]) for row in sorted(by_end)]
    number = {chunk.nodes[-1].row: index for index, chunk in enumerate(chunks)}
    for index, chunk in enumerate(chunks):
        above = chunk.nodes[0].parent
        if above is not None:
            chunk.parent = number[above.row]
            chunks[chunk.parent].children.append(index)
    return chunks


def build_segments(chunks: list[Chunk]) -> list[Segment]:
    """Level by level; within one in depth-first order."""
    segments: list[Segment] = []
    level = 0
    heads: list[tuple[int, tuple[int, ...]]] = [(i, ()) for i, chunk in enumerate(chunks) if chunk.parent < 0]
    while heads:
        below: list[tuple[int, tuple[int, ...]]] = []
        for head, parent in heads:
            chain = [head]
            while len(chunks[chain[-1]].children) == 1:
                chain += chunks[chain[-1]].children
            children = chunks[chain[-1]].children
            segments.append(Segment(tuple(chain), level, parent, bool(children)))
            below += [(child, tuple(chain)) for child in children]
        heads, level = below, level + 1
    return segments
