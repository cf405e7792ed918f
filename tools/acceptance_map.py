#!/usr/bin/env python3
"""Writes docs/acceptance.md: which test proves which line of the acceptance list, and what is open.

Tests name what they prove in a comment ("Proves D36, D37."). A name belongs to the next test of the
file, or to the whole file when the comment comes before everything else.

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


def find_proofs(tree):
    """id -> {(path, test name or '')}"""
    proofs = {}
    for path, text in tree.texts.items():
        if not is_test_file(path):
            continue
        tests = [(match.start(), match.group(2)) for match in TEST.finditer(text)]
        for comment in COMMENT.finditer(text):
            for name in proved_ids(comment.group(0)):
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
