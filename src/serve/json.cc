#include "serve/json.h"

#include <algorithm>
#include <vector>

namespace skippy {
namespace {

// An object that keeps its order looks through its members for each one that is added.
constexpr std::size_t kMemberComparisonsMax = 50'000'000;  // one object of 10,000 members

struct Shape {
  int depth_max = 0;
  std::size_t member_comparisons = 0;  // to build it
};

// Of `text`, which need not be valid JSON. The library parses without recursion but prints with it,
// so that depth is bounded before anything is built.
Shape ShapeOf(std::string_view text) {
  Shape shape;
  std::vector<std::size_t> members(1);  // of each value that is open
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      members.push_back(0);
      shape.depth_max = std::max(shape.depth_max, static_cast<int>(members.size()) - 1);
      if (shape.depth_max > kJsonDepthMax) {
        return shape;
      }
    } else if ((c == ']' || c == '}') && members.size() > 1) {
      members.pop_back();
    } else if (c == ':') {
      shape.member_comparisons += members.back()++;
    }
  }
  return shape;
}

}  // namespace

ApiResult<Json> ParseJsonObject(std::string_view body) {
  const Shape shape = ShapeOf(body);
  if (shape.member_comparisons > kMemberComparisonsMax) {
    return InvalidRequest("", "an object of the request body has too many members");
  }
  if (shape.depth_max > kJsonDepthMax) {
    return InvalidRequest("", "the request body is nested more than " +
                                  std::to_string(kJsonDepthMax) + " levels deep");
  }
  try {
    Json value = Json::parse(body);
    if (!value.is_object()) {
      return InvalidRequest(
          "", "the request body must be a JSON object, not " + std::string(value.type_name()));
    }
    return value;
  } catch (const nlohmann::json::exception&) {
    // The library's own text quotes the input, which must not reach logs.
    return InvalidRequest("", "the request body is not valid JSON");
  }
}

std::string DumpJson(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const Json* FindMember(const Json& object, std::string_view name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace skippy
