// The table of what the server answers: method, path, handler. Built once, then only read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/http_types.h"

namespace skippy {

struct Route {
  std::string method;  // "GET", "POST", "DELETE"
  std::string path;    // segments; one that begins with ':' matches any and is a path parameter
  HttpHandler handler;
  // Answered without an API key and outside the limit of concurrent requests: health and the like.
  bool open = false;
};

class Router {
 public:
  void Add(Route route) { routes_.push_back(std::move(route)); }
  const std::vector<Route>& routes() const { return routes_; }

  // The methods that `path` answers, "GET, POST"; empty when no route has this path.
  std::string AllowedMethods(std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

// True when `path` is one that `pattern` (as in Route::path) stands for.
bool PathMatches(std::string_view pattern, std::string_view path);

}  // namespace skippy
