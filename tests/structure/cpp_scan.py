"""Finds functions in C++ text, well enough for clang-formatted code: no preprocessor, no types.

A brace opens a function when the text before it has a parameter list and everything around it is
a namespace, a class or a linkage block. What stands inside a function, lambdas included, belongs
to it.
"""

import dataclasses
import re

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*',
    re.DOTALL | re.MULTILINE)
CONTAINER = re.compile(r'\b(namespace|class|struct|union|enum|extern\s*"")')
ATTRIBUTE = re.compile(r'\b[A-Z][A-Z_]+\((?:[^()]|\([^()]*\))*\)')
TRAILER = re.compile(r'\)\s*(?:const|noexcept|\s)*:(?!:)')
CONTROL = {'if', 'for', 'while', 'switch', 'catch'}


@dataclasses.dataclass
class Function:
    name: str
    first_line: int
    line_count: int
    parameter_count: int
    is_test: bool


def blank_out(text):
    """Comments, literals and preprocessor lines become blanks of the same length and line count."""
    def replace(match):
        token = match.group(0)
        blanks = re.sub(r'[^\n]', ' ', token)
        return '""' + blanks[2:] if token.startswith(('"', 'R"')) else blanks
    return TOKEN.sub(replace, text)


def matching_brace(text, start):
    depth = 0
    for index in range(start, len(text)):
        if text[index] == '{':
            depth += 1
        elif text[index] == '}':
            depth -= 1
            if depth == 0:
                return index
    return len(text) - 1


def strip_groups(text, opening, closing):
    """Without what stands inside (and including) balanced groups."""
    out, depth = [], 0
    for char in text:
        if char == opening:
            depth += 1
        elif char == closing and depth:
            depth -= 1
        elif depth == 0:
            out.append(char)
    return ''.join(out)


def header_name(header):
    match = re.search(r'([\w:~]+|operator\s*\S+?)\s*\(', header)
    return match.group(1) if match else '?'


def parameter_text(header):
    start = header.find('(')
    depth = 0
    for index in range(start, len(header)):
        depth += {'(': 1, ')': -1}.get(header[index], 0)
        if depth == 0:
            return header[start + 1:index]
    return ''


def count_parameters(header):
    inner = parameter_text(header)
    for pair in ('<>', '()', '{}', '[]'):
        inner = strip_groups(inner, *pair)
    return inner.count(',') + 1 if inner.strip() else 0


def is_initialiser(header):
    """A brace inside a constructor's member list: `Foo() : a_{1}`."""
    return bool(TRAILER.search(header)) and header.rstrip()[-1:] not in (')', '}')


def is_function(header):
    flat = re.sub(r'operator\s*[^\s(]+|operator\s*\(\)', 'operator_', header)
    if '(' not in flat:
        return False
    outside = strip_groups(strip_groups(flat, '(', ')'), '<', '>')
    return '=' not in outside and header_name(header) not in CONTROL


def find_functions(text):
    code = blank_out(text)
    functions = []
    start = index = 0
    while index < len(code):
        char = code[index]
        if char in ';}':
            start = index + 1
        elif char == ':' and re.search(r'\b(public|private|protected)\s*$', code[start:index]):
            start = index + 1
        elif char == '{':
            header = code[start:index]
            plain = ATTRIBUTE.sub(' ', re.sub(r'\btemplate\s*<[^{};]*?>\s', ' ', header))
            outside = strip_groups(plain, '(', ')')
            if is_initialiser(header):
                index = matching_brace(code, index)
            elif CONTAINER.search(outside) and not outside.rstrip().endswith(')') and not (
                    is_function(plain) and '(' in plain and ' final' not in plain):
                start = index + 1
            elif is_function(header):
                end = matching_brace(code, index)
                functions.append(describe(code, start, index, end))
                index, start = end, end + 1
            else:
                index = matching_brace(code, index)
        index += 1
    return functions


def describe(code, start, brace, end):
    header = code[start:brace]
    first = start + len(header) - len(header.lstrip())
    name = header_name(header)
    return Function(
        name=name if not re.match(r'(TEST|RC_GTEST|BENCHMARK)', name) else header.strip(),
        first_line=code.count('\n', 0, first) + 1,
        line_count=code.count('\n', first, end) + 1,
        parameter_count=count_parameters(header),
        is_test=bool(re.match(r'(TEST|RC_GTEST|BENCHMARK)', name)))
