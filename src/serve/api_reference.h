// The reference page of the request fields, made from the tables that requests are checked by.
#pragma once

#include <string>

namespace skippy {

// docs/http_api.md as it must read. Markdown.
std::string ApiReferenceMarkdown();

}  // namespace skippy
