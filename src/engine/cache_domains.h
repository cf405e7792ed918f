// Which domain of the cache each namespace of this model is.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/mutex.h"
#include "skippy/cache.h"

namespace skippy {

// Domains are opened as soon as the state identity is known, by the threads that may wait for the
// cache: those that submit and the one that computes the identity. The engine thread only looks.
// Any thread.
class CacheDomains {
 public:
  // `cache` may be null: then nothing is ever found. Not owned.
  CacheDomains(Cache* cache, std::string model_name);

  void SetIdentity(const ModelIdentity& model, const StateIdentity& state);
  // Opens the namespace now, or once the identity is known, and has the cache fetch what it knows
  // of the prompt. May wait for the disk.
  void Want(const std::string& name_space, std::span<const Token> prompt, ResumeRule rule);
  // Never blocks on more than a short lock.
  std::optional<DomainId> Find(const std::string& name_space) const;

 private:
  void Open(DomainSpec spec);

  Cache* const cache_;
  const std::string model_name_;
  mutable Mutex mu_;
  std::optional<DomainSpec> identity_ GUARDED_BY(mu_);  // name_space not set
  std::map<std::string, std::optional<DomainId>> domains_ GUARDED_BY(mu_);
};

}  // namespace skippy
