#include "control/config_file.h"

#define TOML_EXCEPTIONS 0
#include <spdlog/fmt/fmt.h>
#include <toml++/toml.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace skippy {
namespace {

ConfigSetting ToSetting(std::string key, const toml::node& node, bool in_array) {
  ConfigSetting out;
  out.key = std::move(key);
  out.line = static_cast<int>(node.source().begin.line);
  out.in_array = in_array;
  if (const auto* text = node.as_string()) {
    out.kind = ConfigSetting::Kind::kText;
    out.text = text->get();
  } else if (const auto* number = node.as_integer()) {
    out.kind = ConfigSetting::Kind::kInteger;
    out.text = fmt::format("{}", number->get());
  } else if (const auto* boolean = node.as_boolean()) {
    out.kind = ConfigSetting::Kind::kBoolean;
    out.text = boolean->get() ? "true" : "false";
  } else {
    std::ostringstream shown;
    shown << toml::node_view<const toml::node>(node);
    out.text = shown.str();
  }
  return out;
}

void Flatten(const toml::table& table, const std::string& prefix, std::vector<ConfigSetting>* out) {
  for (const auto& [key, node] : table) {
    const std::string dotted = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      Flatten(*inner, dotted + ".", out);
    } else if (const auto* array = node.as_array()) {
      if (array->empty()) {
        out->push_back({dotted, ConfigSetting::Kind::kEmptyArray, "[]",
                        static_cast<int>(node.source().begin.line), true});
      }
      for (const auto& element : *array) {
        out->push_back(ToSetting(dotted, element, true));
      }
    } else {
      out->push_back(ToSetting(dotted, node, false));
    }
  }
}

}  // namespace

Result<std::vector<ConfigSetting>> ParseConfigText(const std::string& text) {
  const toml::parse_result parsed = toml::parse(text);
  if (!parsed) {
    const auto& error = parsed.error();
    return MakeError(ErrorCode::kInvalidArgument,
                     fmt::format("line {}: {}", error.source().begin.line, error.description()));
  }
  std::vector<ConfigSetting> out;
  Flatten(parsed.table(), "", &out);
  return out;
}

Result<std::vector<ConfigSetting>> ReadConfigFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::getline(file, text, '\0');
  if (!file.eof()) {
    const int os_errno = errno;
    if (os_errno == 0) {
      return MakeError(ErrorCode::kInvalidArgument, "is not a text file");
    }
    return MakeError(os_errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                     fmt::format("cannot read: {}", std::strerror(os_errno)), os_errno);
  }
  return ParseConfigText(text);
}

}  // namespace skippy
