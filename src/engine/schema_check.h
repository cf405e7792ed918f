// Finds what a JSON schema asks for that the grammar made from it would not enforce. llama.cpp
// leaves such parts out silently; a caller who demands a form must be told instead. Private to
// engine/.
#pragma once

#include <json.h>

#include <string>

#include "skippy/result.h"

namespace skippy {

// The GBNF grammar for the JSON text `schema`. An empty schema means any JSON object.
// kInvalidArgument names the keyword, with its place, that cannot be enforced.
Result<std::string> GrammarFromSchema(const std::string& schema);

}  // namespace skippy
