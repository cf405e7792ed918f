#include "engine/prefix_history.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/log.h"

namespace skippy {
namespace {

constexpr std::uint64_t kFieldsBytesMax = 64U << 10;
constexpr std::size_t kForeignDomainsMax = 16;

std::string FieldsPath(const std::string& directory, const StateIdentity& state) {
  return directory + "/state-" + state.ToHex();
}

Status WriteFields(Env* env, const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new";
  SKIPPY_ASSIGN_OR_RETURN(
      const std::unique_ptr<File> file,
      env->OpenFile(temporary, {.create = true, .exclusive = false, .writable = true}));
  SKIPPY_RETURN_IF_ERROR(file->Truncate(0));
  SKIPPY_RETURN_IF_ERROR(file->WriteAt(0, std::as_bytes(std::span(text))));
  SKIPPY_RETURN_IF_ERROR(file->Sync());
  return env->Rename(temporary, path);
}

// Name and value of each line "name=value"; empty when the file is not there or too long.
std::map<std::string, std::string> ReadFields(Env* env, const std::string& path) {
  std::map<std::string, std::string> fields;
  const auto file = env->OpenFile(path, {});
  if (!file) return fields;
  const auto byte_count = (*file)->FileBytes();
  if (!byte_count || *byte_count > kFieldsBytesMax) return fields;
  std::string text(*byte_count, '\0');
  const auto read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(text)));
  if (!read || *read != text.size()) return fields;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (const std::size_t equals = line.find('='); equals != std::string::npos) {
      fields[line.substr(0, equals)] = line.substr(equals + 1);
    }
    begin = end + 1;
  }
  return fields;
}

struct Foreign {
  DomainSpec spec;
  TokenCount tokens = 0;
};

// The other domain of the same namespace that has most of the prompt.
Foreign FindForeign(const PrefixHistoryInput& input, std::span<const Token> prompt) {
  std::set<std::pair<ModelIdentity, StateIdentity>> seen{{input.own.model, input.own.state}};
  Foreign best;
  for (const InventoryEntry& entry : input.cache->GetStatus().inventory) {
    if (entry.name_space != input.own.name_space || seen.size() > kForeignDomainsMax ||
        !seen.emplace(entry.model, entry.state).second) {
      continue;
    }
    const DomainSpec spec{entry.model, entry.state, entry.name_space, entry.model_name};
    const Result<DomainId> domain = input.cache->OpenDomain(spec);
    if (!domain) continue;
    const auto limit = static_cast<TokenCount>(prompt.size());
    const TokenCount tokens = input.cache->Peek(*domain, prompt, limit, input.rule);
    if (tokens > best.tokens) best = {spec, tokens};
  }
  return best;
}

}  // namespace

void RememberStateFields(Env* env, const std::string& directory, const StateIdentity& state,
                         const StateFields& fields) {
  if (directory.empty()) return;
  std::string text;
  for (const NamedField& field : DescribeStateFields(fields)) {
    text += field.name + "=" + field.value + "\n";
  }
  const std::string path = FieldsPath(directory, state);
  if (const Status written = WriteFields(env, path, text); !written) {
    LogWarning("{} was not written: {}", path, written.error().text);
  }
}

std::vector<ChangedField> ChangedStateFields(Env* env, const std::string& directory,
                                             const StateIdentity& before,
                                             const StateIdentity& after, const StateFields& now) {
  std::map<std::string, std::string> known;
  if (!directory.empty()) known = ReadFields(env, FieldsPath(directory, before));
  std::vector<ChangedField> changed;
  for (const NamedField& field : DescribeStateFields(now)) {
    const auto found = known.find(field.name);
    if (found != known.end() && found->second != field.value) {
      changed.push_back({field.name, found->second, field.value});
    }
  }
  if (changed.empty()) changed.push_back({"state_identity", before.ToHex(), after.ToHex()});
  return changed;
}

PrefixHistory FindPrefixHistory(const PrefixHistoryInput& input, std::span<const Token> prompt) {
  PrefixHistory history;
  const Result<DomainId> own = input.cache->OpenDomain(input.own);
  if (!own) return history;
  if (const auto removed = input.cache->FindRemoved(*own, prompt)) {
    history.removed_tokens = removed->tokens;
    history.removed_by = ToString(removed->cause);
    history.removed_at = removed->removed_at;
  }
  const Foreign foreign = FindForeign(input, prompt);
  history.foreign_tokens = foreign.tokens;
  if (foreign.tokens == 0) return history;
  if (foreign.spec.model != input.own.model) {
    history.changed.push_back(
        {"model_identity", foreign.spec.model.ToHex(), input.own.model.ToHex()});
  } else {
    history.changed = ChangedStateFields(input.env, input.directory, foreign.spec.state,
                                         input.own.state, input.fields);
  }
  return history;
}

}  // namespace skippy
