// The table of what the server answers: method, path, handler. Built once, then only read.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/api_error.h"
#include "serve/http_types.h"

namespace skippy {

struct Route {
  std::string method;  // "GET", "POST", "DELETE"
  std::string path;    // segments; one that begins with ':' matches any and is a path parameter
  HttpHandler handler;
  // Answered without an API key and outside the limit of concurrent requests: health and the like.
  bool open = false;
  // How requests are refused before the handler sees them: the form of the route's API.
  HttpResponse (*refuse)(const ApiError& error) = ErrorResponse;
};

class Router {
 public:
  void Add(Route route) { routes_.push_back(std::move(route)); }
  const std::vector<Route>& routes() const { return routes_; }

  // The first route of `path`, whatever the method; null when there is none. Owned by the router.
  const Route* Find(std::string_view path) const;

  // The methods that `path` answers, "GET, POST"; empty when no route has this path.
  std::string AllowedMethods(std::string_view path) const;

 private:
  std::vector<Route> routes_;
};

// True when `path` is one that `pattern` (as in Route::path) stands for.
bool PathMatches(std::string_view pattern, std::string_view path);

}  // namespace skippy
