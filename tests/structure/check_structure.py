#!/usr/bin/env python3
"""Checks that the tree keeps its own rules: who includes whom, how long things are, which words
stay out, what tests and documents refer to. CONTRIBUTING.md tells the rules in prose.

usage: check_structure.py [ROOT]       prints one line per finding, exits 1 when there is one

tests/structure/ratchet.json lists known exceptions, {"rule path subject": allowed value}. It may
only shrink: an entry that is no longer needed is a finding too.
"""

import json
import math
import os
import re
import sys
import urllib.parse

import cpp_scan

FUNCTION_LINES, FUNCTION_LINES_P90 = 70, 30
HEADER_LINES, SOURCE_LINES, LINE_COLUMNS, PARAMETERS = 400, 800, 100, 5
MIN_FUNCTIONS_FOR_P90 = 10

# Module -> what it may include besides itself and skippy/. Files outside src/ may include all.
MIDDLE = ('ram', 'pack', 'catalog', 'index', 'policy', 'codec')
ALLOWED = {
    'base': (), 'env': ('base',),
    **{name: ('base', 'env') for name in MIDDLE},
    'cache': ('base', 'env') + MIDDLE,
}
ALLOWED['catalog'] += ('pack',)
ALLOWED['engine'] = ALLOWED['cache'] + ('cache',)
ALLOWED['serve'] = ALLOWED['engine'] + ('engine',)
ALLOWED['control'] = ALLOWED['serve'] + ('serve',)
ALLOWED['cli'] = ALLOWED['control'] + ('control', 'bench')
CATALOG_MAY_INCLUDE = 'pack/pack_store.h'

LLAMA = re.compile(r'^(llama(-cpp)?|ggml[-\w]*|gguf|chat|common|sampling|arg|speculative|log'
                   r'|json-schema-to-grammar|peg-parser)\.h$|^jinja/')
# Third-party header -> folders of src/ that may name it; a number bounds the .cc files per folder.
THIRD_PARTY = (
    (re.compile(r'^sqlite3(ext)?\.h$'), ('catalog',), None),
    (re.compile(r'^(cpp-httplib/)?httplib\.h$'), ('serve', 'control', 'cli'), 1),
    (re.compile(r'^nlohmann/'), ('serve', 'control', 'cli'), None),
    (LLAMA, ('engine',), None),
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.MULTILINE)

# Written in two parts so that this file does not break its own rules.
UNFINISHED = re.compile('|'.join((
    r'\bTO' r'DO\b', r'\bFIX' r'ME\b', r'\bX' r'XX\b', r'\bHA' r'CK\b',
    r'(?i:\bnot ' r'implemented\b)', r'(?i:\bst' r'ub(s|bed)?\b)', r'(?i:\bplace' r'holder)',
    r'\bGTEST_' r'SKIP\b')))
SLEEP = re.compile(r'\b(sleep_' r'(for|until)|u' r'sleep|nano' r'sleep|sleep)\s*\(')
MACHINE_PATH = re.compile(r'(?<![\w.])/(work|root/\.cache|opt/' r'llama)/')
REGISTRY = re.compile(r'(https?://)?[\w.-]*(npm' r'js|deb\.' r'debian|py' r'pi|crates'
                      r'|proxy\.' r'golang)[\w-]*\.(org|com|io|dev)')
TEST = re.compile(r'^\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)'
                  r'\(\s*(\w+)\s*,\s*(\w+)', re.MULTILINE)
SENTENCE = re.compile(r'^[A-Z][a-z0-9]*([A-Z][a-z0-9]*)+$')
PROVES = re.compile(r'\bProves?\s+([A-Z]{1,2}\d+(?:(?:\s*,\s*|\s+and\s+|\s*-\s*)[A-Z]{1,2}\d+)*)')
ACCEPTANCE_ID = re.compile(r'[A-Z]{1,2}\d+')
LINK = re.compile(r'(?<!!)\[[^\]]*\]\(([^)\s]+)\)')

CODE_FOLDERS = ('src', 'include', 'bench', 'certify', 'fuzz', 'tests', 'tools', 'cmake', '.ci')
CODE_SUFFIXES = ('.h', '.cc', '.py', '.sh', '.cmake', '.txt', '.sql', '.json', '.md', '.toml')
SELF = 'tests/structure/'


class Tree:
    """The files of the project, read once."""

    def __init__(self, root):
        self.root = root
        self.texts = {}
        for path in self._paths():
            with open(os.path.join(root, path), encoding='utf-8', errors='replace') as file:
                self.texts[path] = file.read()

    def _paths(self):
        for folder, names, files in os.walk(self.root):
            relative = os.path.relpath(folder, self.root)
            names[:] = sorted(n for n in names if not (
                n in ('.git', '__pycache__') or (relative == '.' and n == 'build')))
            for name in sorted(files):
                if name.endswith(CODE_SUFFIXES) or name in ('Makefile', 'run'):
                    yield os.path.normpath(os.path.join(relative, name))

    def cpp(self):
        return {p: t for p, t in self.texts.items() if p.endswith(('.h', '.cc'))}

    def modules(self):
        return sorted({p.split('/')[1] for p in self.cpp() if p.startswith('src/')})


def module_of(path):
    parts = path.split('/')
    return parts[1] if parts[0] == 'src' and len(parts) > 2 else None


def check_includes(tree):
    holders = {}
    for path, text in tree.cpp().items():
        module = module_of(path)
        for quote, name in INCLUDE.findall(text):
            if path.startswith('include/') and quote == '"' and not name.startswith('skippy/'):
                yield f'include {path} {name}', 'the public API includes only skippy/ and libraries'
            if module:
                yield from check_module_include(path, module, name)
                holders.setdefault((module, name), set()).add(path)
    for (module, name), paths in sorted(holders.items()):
        for pattern, _, most in THIRD_PARTY:
            sources = sorted(p for p in paths if not p.endswith('_test.cc'))
            if most and pattern.match(name) and len(sources) > most:
                yield f'include src/{module} {name}', f'more than {most} file: {", ".join(sources)}'
            if most and pattern.match(name) and any(p.endswith('.h') for p in sources):
                yield f'include src/{module} {name}', 'belongs into one .cc, not a header'


def check_module_include(path, module, name):
    for pattern, folders, _ in THIRD_PARTY:
        if pattern.match(name) and module not in folders:
            yield f'include {path} {name}', f'only {", ".join(folders)} may name it'
    other = name.split('/')[0]
    if '/' not in name or other not in ALLOWED or other == module:
        return
    if module not in ALLOWED:
        yield f'include {path} {name}', f'module {module} has no place in the order of modules'
    elif other not in ALLOWED[module]:
        yield f'include {path} {name}', f'{module} must not know {other}'
    elif module == 'catalog' and other == 'pack' and name != CATALOG_MAY_INCLUDE:
        yield f'include {path} {name}', f'of pack, catalog may include {CATALOG_MAY_INCLUDE} only'


def check_sizes(tree):
    by_module = {}
    for path, text in tree.cpp().items():
        lines = text.splitlines()
        limit = HEADER_LINES if path.endswith('.h') else SOURCE_LINES
        if len(lines) > limit:
            yield f'file_lines {path} file', len(lines), f'at most {limit} lines'
        for function in cpp_scan.find_functions(text):
            where = f'{path} {function.name.replace(" ", "")}'
            if function.line_count > FUNCTION_LINES:
                yield (f'function_lines {where}', function.line_count,
                       f'line {function.first_line}: at most {FUNCTION_LINES} lines')
            if function.parameter_count > PARAMETERS and not function.is_test:
                yield (f'parameters {where}', function.parameter_count,
                       f'line {function.first_line}: at most {PARAMETERS}, else an options struct')
            if module_of(path) and not path.endswith('_test.cc'):
                by_module.setdefault(module_of(path), []).append(function.line_count)
    for module, counts in sorted(by_module.items()):
        p90 = sorted(counts)[math.ceil(0.9 * len(counts)) - 1]
        if len(counts) >= MIN_FUNCTIONS_FOR_P90 and p90 > FUNCTION_LINES_P90:
            yield f'function_lines_p90 src/{module} module', p90, f'at most {FUNCTION_LINES_P90}'


def check_columns(tree):
    for path, text in tree.texts.items():
        if not path.endswith(('.h', '.cc', '.py')):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > LINE_COLUMNS:
                yield f'columns {path} line{number}', f'{len(line)} columns, at most {LINE_COLUMNS}'


def check_words(tree):
    for path, text in tree.texts.items():
        in_code = path.split('/')[0] in CODE_FOLDERS or path == 'CMakeLists.txt'
        if path.startswith(SELF):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            where = f'{path} line{number}'
            if in_code and (found := UNFINISHED.search(line)):
                yield f'words {where}', f'"{found.group(0)}": unfinished work'
            if found := MACHINE_PATH.search(line):
                yield f'words {where}', f'"{found.group(0)}": a path of one machine'
            if found := REGISTRY.search(line):
                yield f'words {where}', f'"{found.group(0)}": a package registry by its host'
            if path.startswith('src/') and (found := SLEEP.search(line)):
                yield f'words {where}', f'"{found.group(0)}": wait for a condition instead'


def check_test_names(tree):
    for path, text in tree.cpp().items():
        for suite, name in TEST.findall(text):
            if not SENTENCE.match(name) or '_' in suite:
                yield f'test_name {path} {suite}.{name}', 'a test name is a sentence in CamelCase'


def proved_ids(text):
    """IDs after "Proves": lists by comma or "and", ranges by hyphen."""
    for match in PROVES.finditer(re.sub(r'\n\s*//\s*', ' ', text)):
        parts = re.split(r'(\s*-\s*)', match.group(1))
        ids = ACCEPTANCE_ID.findall(match.group(1))
        yield from ids
        for left, dash, right in zip(parts, parts[1:], parts[2:]):
            if '-' in dash:
                first, last = ACCEPTANCE_ID.findall(left)[-1], ACCEPTANCE_ID.findall(right)[0]
                yield from ids_between(first, last)


def ids_between(first, last):
    letters = re.match('[A-Z]+', first).group(0)
    if last.startswith(letters):
        for number in range(int(first[len(letters):]) + 1, int(last[len(letters):])):
            yield f'{letters}{number}'


def check_acceptance_ids(tree):
    lines = tree.texts.get('docs/acceptance_ids.txt', '').splitlines()
    known = {line.split()[0] for line in lines if line.strip()}
    for path, text in tree.texts.items():
        if path.endswith(('.cc', '.py', '.sh')) and not path.startswith(SELF):
            for name in sorted(set(proved_ids(text)) - known):
                yield f'acceptance {path} {name}', 'no such line in docs/acceptance_ids.txt'


def check_architecture(tree):
    text = tree.texts.get('ARCHITECTURE.md', '')
    for module in tree.modules():
        if f'src/{module}/' not in text:
            yield f'architecture src/{module} folder', 'not described in ARCHITECTURE.md'


def check_links(tree):
    for path, text in tree.texts.items():
        if not path.endswith('.md'):
            continue
        for target in LINK.findall(text):
            if re.match(r'[a-z]+:|#', target):
                continue
            file = urllib.parse.unquote(target.split('#')[0])
            folder = '' if file.startswith('/') else os.path.dirname(path)
            if not os.path.exists(os.path.join(tree.root, folder, file.lstrip('/'))):
                yield f'link {path} {target}', 'leads nowhere'


CHECKS = (check_includes, check_sizes, check_columns, check_words, check_test_names,
          check_acceptance_ids, check_architecture, check_links)


def apply_ratchet(findings, allowed):
    """Drops findings within their allowed value; adds one for each exception nobody needs."""
    unused = dict(allowed)
    for key, *value, text in findings:
        limit = unused.pop(key, allowed.get(key))
        if limit is None or (value and value[0] > limit):
            yield f'{key}: {value[0]}, {text}' if value else f'{key}: {text}'
    for key in unused:
        yield f'ratchet {key}: no longer needed, remove it'


def check_tree(root):
    tree = Tree(root)
    findings = [finding for check in CHECKS for finding in check(tree)]
    ratchet = json.loads(tree.texts.get('tests/structure/ratchet.json', '{}'))
    return list(apply_ratchet(findings, ratchet)), len(tree.texts)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(here, '..', '..')
    findings, file_count = check_tree(os.path.normpath(root))
    for finding in findings:
        print(finding)
    print(f'{file_count} files checked, {len(findings)} findings')
    return 1 if findings else 0


if __name__ == '__main__':
    sys.exit(main())
