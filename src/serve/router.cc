#include "serve/router.h"

#include <algorithm>

namespace skippy {
namespace {

// Cuts the first segment off `rest` (which begins with '/').
std::string_view TakeSegment(std::string_view& rest) {
  rest.remove_prefix(1);
  const std::size_t end = rest.find('/');
  const std::string_view segment = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  return segment;
}

}  // namespace

bool PathMatches(std::string_view pattern, std::string_view path) {
  while (!pattern.empty() && !path.empty()) {
    const std::string_view expected = TakeSegment(pattern);
    const std::string_view actual = TakeSegment(path);
    const bool matches = expected.starts_with(':') ? !actual.empty() : expected == actual;
    if (!matches) {
      return false;
    }
  }
  return pattern.empty() && path.empty();
}

const Route* Router::Find(std::string_view path) const {
  const auto found = std::find_if(routes_.begin(), routes_.end(), [path](const Route& route) {
    return PathMatches(route.path, path);
  });
  return found == routes_.end() ? nullptr : &*found;
}

std::string Router::AllowedMethods(std::string_view path) const {
  std::string methods;
  for (const Route& route : routes_) {
    if (PathMatches(route.path, path) && methods.find(route.method) == std::string::npos) {
      methods += (methods.empty() ? "" : ", ") + route.method;
    }
  }
  return methods;
}

}  // namespace skippy
