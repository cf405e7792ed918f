#!/usr/bin/env python3
"""Writes docs/acceptance.md: which test proves which line of the acceptance list, and what is open.

Tests name what they prove in a comment ("Proves D36, D37."). A name belongs to the next test of the
file, or to the whole file when the comment comes before everything else.

The same for reported bugs of other servers, which tests name as cases ("Case A5.").

usage: acceptance_map.py           writes docs/acceptance.md
       acceptance_map.py --check   exits 1 when the page claims a test that does not exist, or lacks
                                   a line of docs/acceptance_ids.txt
"""

import os
import re
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'structure'))
from check_structure import SELF, TEST, Tree, proved_ids  # noqa: E402

IDS, PAGE = 'docs/acceptance_ids.txt', 'docs/acceptance.md'
COMMENT = re.compile(r'((?:^[ \t]*(?://|#)[^\n]*\n)+|\"\"\".*?\"\"\")', re.MULTILINE | re.DOTALL)
CASES = re.compile(r'\b[Cc]ases? ((?:[A-N]\d+(?:, | and )?)+)')
CASE = re.compile(r'[A-N]\d+')
# Kinds: damage, identity, reuse, model classes, usage, cancellation, budget, restarts, concurrency,
# turns, context, conformance, configuration, operators.
ALL_CASES = ('A1 A2 A5 A7 A9 B1 B3 B6 B7 B10 C1 C3 C5 C7 C9 C11 D1 D4 D5 D7 E1 E4 E5 F1 F3 F5 '
             'G1 G3 G5 G8 G10 G12 G14 G16 G18 H1 H4 H5 I1 I4 I6 I8 J1 J3 J6 J8 J10 K1 K3 '
             'L1 L3 L6 L7 L9 L11 L13 M1 M3 M5 N1 N4 N5').split()
CLAIM = re.compile(r'`([^`]+\.(?:cc|py|sh))`(?: \(([^)]*)\))?')


def read_ids(tree):
    """[(section title, [(id, reason)])]"""
    sections = []
    for line in tree.texts[IDS].splitlines():
        if match := re.match(r'# ([A-Z]{1,2}: .*)', line):
            sections.append((match.group(1), []))
        elif line.strip() and not line.startswith('#'):
            name, _, reason = line.partition(' ')
            sections[-1][1].append((name, reason))
    return sections


def is_test_file(path):
    if path.startswith(SELF) or not path.endswith(('.cc', '.py', '.sh')):
        return False
    return path.endswith('_test.cc') or path.startswith(('tests/', 'bench/', 'certify/', 'fuzz/'))


def case_ids(comment):
    return [name for group in CASES.findall(comment) for name in CASE.findall(group)]


def find_proofs(tree, names_in=proved_ids):
    """id -> {(path, test name or '')}"""
    proofs = {}
    for path, text in tree.texts.items():
        if not is_test_file(path):
            continue
        tests = [(match.start(), match.group(2)) for match in TEST.finditer(text)]
        for comment in COMMENT.finditer(text):
            for name in names_in(comment.group(0)):
                test = test_at(tests, comment, is_head=comment.start() == 0)
                proofs.setdefault(name, set()).add((path, test))
    return proofs


def test_at(tests, comment, is_head):
    """The test the comment stands right above or inside of; '' for the head of a file."""
    if is_head:
        return ''
    following = [name for start, name in tests if 0 <= start - comment.end() <= 1]
    enclosing = [name for start, name in tests if start < comment.start()]
    return (following or enclosing[-1:] or [''])[0]


def describe(proofs):
    by_path = {}
    for path, test in sorted(proofs):
        by_path.setdefault(path, []).append(test)
    parts = []
    for path, tests in by_path.items():
        names = ', '.join(name for name in tests if name)
        parts.append(f'`{path}`' + (f' ({names})' if names else ''))
    return '; '.join(parts)


def make_page(tree):
    sections, proofs = read_ids(tree), find_proofs(tree)
    total = sum(len(lines) for _, lines in sections)
    proved = sum(name in proofs for _, lines in sections for name, _ in lines)
    settled = sum(bool(reason) and name not in proofs for _, lines in sections
                  for name, reason in lines)
    out = ['# What is proved by which test', '',
           'Made by `tools/acceptance_map.py` from `docs/acceptance_ids.txt` and the "Proves"',
           'comments of the tests; edit those, not this page.', '',
           f'{total} lines: {proved} proved, {settled} replaced or without need of a proof, '
           f'{total - proved - settled} open.']
    for title, lines in sections:
        out += ['', f'## {title}', '', '| line | proof |', '|---|---|']
        for name, reason in lines:
            proof = describe(proofs[name]) if name in proofs else reason or 'open'
            out.append(f'| {name} | {proof} |')
    cases = find_proofs(tree, case_ids)
    out += ['', '## Reported bugs of other servers', '',
            'Each case is a scenario that a public bug report describes.', '',
            '| case | test |', '|---|---|']
    out += [f'| case {name} | {describe(cases[name]) if name in cases else "open"} |'
            for name in ALL_CASES]
    return '\n'.join(out) + '\n'


def check_page(tree):
    page = tree.texts.get(PAGE, '')
    for _, lines in read_ids(tree):
        for name, _ in lines:
            if f'| {name} |' not in page:
                yield f'{PAGE} lacks {name}: run tools/acceptance_map.py'
    for path, names in CLAIM.findall(page):
        text = tree.texts.get(path)
        known = {test for _, test in TEST.findall(text or '')}
        if text is None or not set(filter(None, names.split(', '))) <= known:
            yield f'{PAGE} claims {path} ({names}), which is gone: run tools/acceptance_map.py'


def main():
    tree = Tree(ROOT)
    if sys.argv[1:] == ['--check']:
        problems = sorted(set(check_page(tree)))
        print('\n'.join(problems) or f'{PAGE} claims nothing that is not there')
        return 1 if problems else 0
    with open(os.path.join(ROOT, PAGE), 'w', encoding='utf-8') as file:
        file.write(make_page(tree))
    return 0


if __name__ == '__main__':
    sys.exit(main())
