#include "serve/volatile_word.h"

#include <algorithm>
#include <cctype>
#include <string>

namespace skippy {
namespace {

constexpr std::size_t kHexDigitsMin = 8;  // fewer are words and numbers as often as ids

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsHex(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

bool IsWordPart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         std::string_view("-:./_+").find(c) != std::string_view::npos;
}

// Digits as 9, everything else as it is.
std::string Shape(std::string_view word) {
  std::string shape(word);
  std::replace_if(shape.begin(), shape.end(), IsDigit, '9');
  return shape;
}

bool IsUuid(std::string_view word) {
  constexpr std::string_view kForm = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
  return word.size() == kForm.size() &&
         std::equal(word.begin(), word.end(), kForm.begin(),
                    [](char c, char form) { return form == 'x' ? IsHex(c) : c == form; });
}

bool Contains(const std::string& shape, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&shape](std::string_view part) {
    return shape.find(part) != std::string::npos;
  });
}

}  // namespace

std::string_view WordAt(std::string_view text, std::size_t position) {
  std::size_t begin = std::min(position, text.size());
  std::size_t end = begin;
  while (begin > 0 && IsWordPart(text[begin - 1])) {
    --begin;
  }
  while (end < text.size() && IsWordPart(text[end])) {
    ++end;
  }
  while (end > begin && (text[end - 1] == '.' || text[end - 1] == ':')) {
    --end;  // the end of a sentence or clause
  }
  return text.substr(begin, end - begin);
}

std::string_view VolatileKind(std::string_view word) {
  if (IsUuid(word)) {
    return "uuid";
  }
  const std::string shape = Shape(word);
  const bool date = Contains(shape, {"9999-99-99", "9999/99/99", "99/99/9999", "99.99.9999"});
  const bool time = Contains(shape, {"9:99"});
  if (date && time) {
    return "date and time";
  }
  if (date || time) {
    return date ? "date" : "time";
  }
  const bool digits = std::any_of(word.begin(), word.end(), IsDigit);
  if (digits && std::all_of(word.begin(), word.end(),
                            [](char c) { return IsDigit(c) || c == '.' || c == '-'; })) {
    return "number";
  }
  if (digits && word.size() >= kHexDigitsMin && std::all_of(word.begin(), word.end(), IsHex)) {
    return "hexadecimal id";
  }
  return "";
}

}  // namespace skippy
