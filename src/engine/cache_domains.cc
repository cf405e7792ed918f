#include "engine/cache_domains.h"

#include <utility>
#include <vector>

#include "base/log.h"

namespace skippy {

CacheDomains::CacheDomains(Cache* cache, std::string model_name)
    : cache_(cache), model_name_(std::move(model_name)) {}

void CacheDomains::Open(DomainSpec spec) {
  const Result<DomainId> domain = cache_->OpenDomain(spec);
  if (!domain) {
    LogWarning("cache: namespace \"{}\" is not cached: {}", spec.name_space, domain.error().text);
    return;
  }
  MutexLock lock(mu_);
  domains_[spec.name_space] = *domain;
}

void CacheDomains::SetIdentity(const ModelIdentity& model, const StateIdentity& state) {
  std::vector<DomainSpec> wanted;
  {
    MutexLock lock(mu_);
    identity_ = DomainSpec{model, state, "", model_name_};
    for (const auto& [name_space, domain] : domains_) {
      wanted.push_back({model, state, name_space, model_name_});
    }
  }
  for (DomainSpec& spec : wanted) {
    Open(std::move(spec));
  }
}

void CacheDomains::Want(const std::string& name_space, std::span<const Token> prompt,
                        ResumeRule rule) {
  if (cache_ == nullptr) {
    return;
  }
  std::optional<DomainSpec> spec;
  {
    MutexLock lock(mu_);
    const bool is_new = domains_.try_emplace(name_space, std::nullopt).second;
    if (is_new) {
      spec = identity_;
    }
  }
  if (spec) {
    spec->name_space = name_space;
    Open(std::move(*spec));
  }
  if (const std::optional<DomainId> domain = Find(name_space)) {
    cache_->WarmPath(*domain, prompt, rule);
  }
}

std::optional<DomainId> CacheDomains::Find(const std::string& name_space) const {
  MutexLock lock(mu_);
  const auto found = domains_.find(name_space);
  return found == domains_.end() ? std::nullopt : found->second;
}

}  // namespace skippy
