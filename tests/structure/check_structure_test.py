"""Goal: the structure check finds what it is for, and leaves good code alone. Method: a small tree
with one fault each, checked in a temporary folder.
"""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_structure  # noqa: E402
import cpp_scan  # noqa: E402


def function_of(lines, name='Work'):
    return f'void {name}() {{\n' + '  Step();\n' * (lines - 2) + '}\n'


class CheckStructureTest(unittest.TestCase):

    def findings(self, files):
        """The findings of a tree that has these files and describes its modules."""
        modules = {path.split('/')[1] for path in files if path.startswith('src/')}
        files = {'ARCHITECTURE.md': ' '.join(f'src/{m}/' for m in modules), **files}
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), 'w', encoding='utf-8') as file:
                    file.write(text)
            return check_structure.check_tree(root)[0]

    def assert_found(self, files, *words):
        found = self.findings(files)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def assert_clean(self, files):
        self.assertEqual(self.findings(files), [])

    def test_accepts_the_order_of_modules(self):
        self.assert_clean({'src/cache/a.cc': '#include "pack/pack_store.h"\n#include <vector>\n',
                           'src/catalog/a.cc': '#include "pack/pack_store.h"\n',
                           'src/engine/a.cc': '#include "llama.h"\n#include "cache/b.h"\n'})

    def test_reports_an_include_against_the_order(self):
        self.assert_found({'src/pack/a.cc': '#include "cache/a.h"\n'}, 'pack must not know cache')
        self.assert_found({'src/ram/a.cc': '#include "pack/a.h"\n'}, 'ram must not know pack')
        self.assert_found({'src/catalog/a.cc': '#include "pack/pack_file.h"\n'}, 'pack_store.h')
        self.assert_found({'src/misc/a.cc': '#include "base/a.h"\n'}, 'no place in the order')

    def test_reports_a_library_outside_its_folder(self):
        self.assert_found({'src/serve/a.cc': '#include "llama.h"\n'}, 'only engine')
        self.assert_found({'src/cache/a.cc': '#include <sqlite3.h>\n'}, 'only catalog')
        self.assert_found({'src/cache/a.cc': '#include <nlohmann/json.hpp>\n'}, 'serve')
        self.assert_found({'include/skippy/a.h': '#include "base/check.h"\n'}, 'public API')

    def test_reports_a_second_file_with_the_http_library(self):
        files = {f'src/serve/{n}.cc': '#include <cpp-httplib/httplib.h>\n' for n in 'ab'}
        self.assert_found(files, 'more than 1 file')

    def test_reports_sizes(self):
        self.assert_clean({'src/base/a.cc': function_of(70)})
        self.assert_found({'src/base/a.cc': function_of(71)}, 'function_lines', '71')
        self.assert_found({'src/base/a.h': '\n' * 401}, 'file_lines', '401')
        self.assert_found({'src/base/a.cc': '\n' * 801}, 'file_lines', '801')
        self.assert_found({'src/base/a.cc': '//' + 'x' * 99 + '\n'}, 'columns')
        six = ', '.join(f'int {name}' for name in 'abcdef')
        self.assert_found({'src/base/a.cc': f'int F({six}) {{\n}}\n'}, 'parameters', 'F')

    def test_reports_a_module_of_long_functions(self):
        text = ''.join(function_of(31, f'Work{i}') for i in range(10))
        self.assert_found({'src/base/a.cc': text}, 'function_lines_p90', '31')

    def test_reports_words_that_stay_out(self):
        for line in ('// TO' + 'DO: later', '// a st' + 'ub', 'GTEST_' + 'SKIP();',
                     'std::this_thread::sleep_' + 'for(1ms);', '// see /wo' + 'rk/notes',
                     '// not ' + 'implemented'):
            self.assert_found({'src/base/a.cc': line + '\n'}, 'words', 'line1')
        self.assert_found({'docs/a.md': 'https://registry.npm' + 'js.org/x\n'}, 'registry')

    def test_reports_test_names_that_are_no_sentences(self):
        self.assert_clean({'src/base/a_test.cc': 'TEST(ATest, MergesFreedNeighbours) {\n}\n'})
        self.assert_found({'src/base/a_test.cc': 'TEST(ATest, merge_1) {\n}\n'}, 'ATest.merge_1')
        self.assert_found({'src/base/a_test.cc': 'TEST_F(ATest, Test) {\n}\n'}, 'sentence')

    def test_reports_an_unknown_acceptance_line(self):
        ids = {'docs/acceptance_ids.txt': 'D1\nD2 for later\nD3\n'}
        self.assert_clean({**ids, 'src/base/a_test.cc': '// Proves D1-D3, D2 and\n// D1.\n'})
        self.assert_found({**ids, 'src/base/a_test.cc': '// Proves D1, D9.\n'}, 'D9')

    def test_reports_a_folder_missing_in_the_architecture(self):
        self.assert_found({'ARCHITECTURE.md': 'nothing', 'src/base/a.h': ''}, 'src/base')

    def test_reports_a_broken_link(self):
        self.assert_clean({'README.md': '[a](docs/a.md#part) [b](https://example.org)',
                           'docs/a.md': '[up](../README.md)'})
        self.assert_found({'README.md': '[a](docs/b.md)'}, 'docs/b.md')

    def test_ratchet_allows_only_what_it_names(self):
        key = 'function_lines src/base/a.cc Work'
        self.assertEqual(self.findings({'src/base/a.cc': function_of(80),
                                        'tests/structure/ratchet.json': f'{{"{key}": 80}}'}), [])
        self.assert_found({'src/base/a.cc': function_of(81),
                           'tests/structure/ratchet.json': f'{{"{key}": 80}}'}, '81')
        self.assert_found({'src/base/a.cc': function_of(70),
                           'tests/structure/ratchet.json': f'{{"{key}": 80}}'}, 'no longer needed')


class CppScanTest(unittest.TestCase):

    def names(self, text):
        return [(f.name, f.line_count) for f in cpp_scan.find_functions(text)]

    def test_sees_members_initialisers_and_operators(self):
        text = ('namespace a {\nclass B final : public C {\n public:\n  B() : x_{1}, y_(2) {\n  }\n'
                '  bool operator==(const B& o) const {\n    return true;\n  }\n'
                '  int z() const REQUIRES(mu_) { return 1; }\n  std::vector<int> v_{1, 2};\n'
                '};\n}\n')
        self.assertEqual(self.names(text), [('B', 2), ('operator==', 3), ('z', 1)])

    def test_takes_lambdas_and_tables_as_part_of_what_holds_them(self):
        text = ('const int kTable[] = {F(1), F(2)};\nvoid F(int a = 1) {\n  auto g = [](int b) {\n'
                '    if (b) {\n    }\n  };\n}\n')
        self.assertEqual(self.names(text), [('F', 6)])

    def test_ignores_comments_and_literals(self):
        text = 'void F() {\n  // }\n  Put("}", \'}\', R"({{)", 1\'000);\n}\nvoid G() {\n}\n'
        self.assertEqual(self.names(text), [('F', 4), ('G', 2)])


if __name__ == '__main__':
    unittest.main()
