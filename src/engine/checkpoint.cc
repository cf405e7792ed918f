#include "engine/checkpoint.h"

#include <algorithm>
#include <utility>

namespace skippy {
namespace {

auto FirstAfter(const std::vector<CheckpointPtr>& items, TokenCount position) {
  return std::find_if(items.begin(), items.end(),
                      [position](const CheckpointPtr& item) { return item->position > position; });
}

}  // namespace

void CheckpointList::Add(CheckpointPtr checkpoint) {
  if (!Has(checkpoint->position)) {
    items_.insert(FirstAfter(items_, checkpoint->position), std::move(checkpoint));
  }
}

CheckpointPtr CheckpointList::Deepest(TokenCount position) const {
  const auto after = FirstAfter(items_, position);
  return after == items_.begin() ? nullptr : *(after - 1);
}

bool CheckpointList::Has(TokenCount position) const {
  const CheckpointPtr deepest = Deepest(position);
  return deepest != nullptr && deepest->position == position;
}

CheckpointList CheckpointList::UpTo(TokenCount position) const {
  CheckpointList out;
  out.items_.assign(items_.begin(), FirstAfter(items_, position));
  return out;
}

CheckpointLadder::CheckpointLadder(TokenCount prompt_tokens, TokenCount last_message, bool powers) {
  for (TokenCount power = kFirstPowerTokens; powers && power < prompt_tokens; power *= 2) {
    Want(power);
  }
  if (last_message < prompt_tokens) {
    Want(last_message);
  }
  Want(prompt_tokens - 1);
}

void CheckpointLadder::Want(TokenCount position) {
  if (position > 0 && !IsRung(position)) {
    rungs_.insert(std::lower_bound(rungs_.begin(), rungs_.end(), position), position);
  }
}

std::optional<TokenCount> CheckpointLadder::Next(TokenCount have) const {
  const auto next = std::upper_bound(rungs_.begin(), rungs_.end(), have);
  return next == rungs_.end() ? std::nullopt : std::optional(*next);
}

bool CheckpointLadder::IsRung(TokenCount position) const {
  return std::binary_search(rungs_.begin(), rungs_.end(), position);
}

}  // namespace skippy
