#include "troupe/trainers/inline_link.hpp"

namespace troupe {

namespace {

/// In a world of one nobody else can bring a key.
error never_comes(const std::string& key) {
  return {ec::timeout, "the rendezvous store has no key '" + key
                         + "', and in a world of one nobody will set it"};
}

} // namespace

inline_link::inline_link(run_store& store, inline_callbacks& callbacks,
                         loop_control& control)
  : run_(store), callbacks_(callbacks), control_(control) {}

expected<void> inline_link::check() const {
  if (refusal_)
    return tl::unexpected<error>{refusal_};
  if (control_.ended())
    return tl::unexpected<error>{control_.reason()};
  if (auto& reason = callbacks_.end_reason())
    return tl::unexpected<error>{reason};
  return {};
}

tl::unexpected<error> inline_link::refuse(error reason) {
  refusal_ = std::move(reason);
  return tl::unexpected<error>{refusal_};
}

expected<void> inline_link::report(rank_report x, bool) {
  if (auto ok = check(); !ok)
    return ok;
  report_batch batch;
  batch.index = x.index;
  batch.values.push_back(std::move(x.values));
  batch.parts.push_back(std::move(x.part));
  batch.step_s.push_back(x.step_s);
  auto stored = run_.store(callbacks_.context().attempt, batch);
  if (batch.checkpoint_name())
    callbacks_.show_store_events();
  if (!stored)
    return refuse(std::move(stored.error()));
  std::optional<checkpoint> data;
  if (*stored)
    data = (*stored)->data;
  callbacks_.after_report(batch.index, batch.values, data);
  if (auto& reason = callbacks_.end_reason())
    return tl::unexpected<error>{reason};
  control_.reported(batch.index);
  return {};
}

expected<void> inline_link::log(loop_event x) {
  if (refusal_)
    return tl::unexpected<error>{refusal_};
  auto noted =
    run_.append_event(x.kind, callbacks_.context().attempt, x.fields);
  if (!noted)
    return refuse(std::move(noted.error()));
  if (auto text = text_of_warning(x))
    callbacks_.note("troupe: " + *text);
  return {};
}

expected<void> inline_link::barrier() {
  return check();
}

expected<std::string> inline_link::broadcast(expected<std::string> bytes) {
  return barrier().and_then([&] { return std::move(bytes); });
}

expected<std::vector<reported_checkpoint>> inline_link::reported_checkpoints() {
  return run_.checkpoints();
}

expected<bool> inline_link::has_checkpoint(const std::string& name) {
  return run_.find_checkpoint(name).has_value();
}

void inline_link::on_abort(std::function<void(const error&)>) {
  // There is no peer that could fail, and a stop is seen at the next report.
}

expected<void> inline_link::set(const std::string& key, std::string value) {
  table_.set(key, std::move(value));
  return {};
}

expected<std::string> inline_link::get(const std::string& key, timeout) {
  if (auto value = table_.find(key))
    return *value;
  return tl::unexpected<error>{never_comes(key)};
}

expected<std::int64_t> inline_link::add(const std::string& key,
                                        std::int64_t amount) {
  return table_.add(key, amount).map([](const rendezvous_table::sum& x) {
    return x.value;
  });
}

expected<bool> inline_link::check(const std::vector<std::string>& keys) {
  return table_.check(keys);
}

expected<void> inline_link::wait(const std::vector<std::string>& keys,
                                 timeout) {
  for (auto& key : keys)
    if (!table_.find(key))
      return tl::unexpected<error>{never_comes(key)};
  return {};
}

expected<bool> inline_link::erase(const std::string& key) {
  return table_.erase(key);
}

expected<std::int64_t> inline_link::size() {
  return static_cast<std::int64_t>(table_.size());
}

expected<std::string> inline_link::compare_set(const std::string& key,
                                               const std::string& old_value,
                                               std::string desired) {
  return table_.compare_set(key, old_value, std::move(desired)).value;
}

} // namespace troupe
