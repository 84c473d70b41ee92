#include "troupe/runtime/store/result.hpp"

#include <set>
#include <utility>
#include <variant>

#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/store/journal_reader.hpp"
#include "troupe/runtime/store/kept_result.hpp"
#include "troupe/runtime/store/retention.hpp"
#include "troupe/runtime/store/run_folder.hpp"
#include "troupe/runtime/store/saved_run.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/values/run_error.hpp"

namespace troupe {

using namespace internal;

namespace {

std::string known_numbers(const std::vector<reported_checkpoint>& all) {
  std::set<std::string> names;
  for (auto& x : all)
    for (auto& [name, value] : x.values)
      if (value.is_number())
        names.insert(name);
  return names.empty() ? "none" : joined(names);
}

fs::path journal_file(const fs::path& path) {
  return path / run_layout::journal;
}

// Rank 0's last report. A run that has no journal (yet) reported nothing.
expected<metrics> last_metrics(const fs::path& path) {
  TROUPE_TRY(auto found, look_up(journal_file(path)));
  if (!found.exists())
    return metrics{};
  return read_last_batch(journal_file(path)).map([](auto batch) {
    return batch && !batch->values.empty() ? std::move(batch->values[0])
                                           : metrics{};
  });
}

} // namespace

std::string internal::resume_hint(const std::string& name) {
  return "; the next run with run.name = \"" + name + "\" resumes it";
}

result internal::failed_result(error reason) {
  result x;
  x.status = run_status_kind::errored;
  x.error = make_run_error(std::move(reason));
  return x;
}

expected<reported_checkpoint> result::best_checkpoint(const std::string& metric,
                                                      score_order order) const {
  using key_type = std::pair<retention::score_type, std::uint64_t>;
  const retention rule{{1, metric, order}};
  const reported_checkpoint* best = nullptr;
  key_type best_key;
  for (auto& x : best_checkpoints) {
    if (!x.values.find_number(metric))
      continue;
    key_type key{rule.score(x), x.index}; // Among equals the newer wins.
    if (best && key < best_key)
      continue;
    best = &x;
    best_key = key;
  }
  if (!best)
    return failure(ec::invalid_argument,
                   concat("no checkpoint of ", path.string(),
                          " has a numeric metric '", metric,
                          "'; they have: ", known_numbers(best_checkpoints)));
  return *best;
}

expected<reported_checkpoint> result::best_checkpoint() const {
  if (best_checkpoints.empty())
    return failure(ec::invalid_argument,
                   path.empty()
                     ? "this result has no run: fit() refused to "
                       "begin one"
                     : "the run " + path.string() + " has no checkpoint");
  return best_checkpoints.back();
}

expected<run_history> result::metrics_history() const {
  if (path.empty())
    return failure(ec::invalid_argument,
                   "this result has no run: fit() refused to begin one");
  run_history rows;
  TROUPE_TRY(auto found, look_up(journal_file(path)));
  if (!found.exists())
    return rows;
  TROUPE_TRY(auto reader, journal_reader::open(journal_file(path)));
  TROUPE_TRY_VOID(reader.read_rest(
    [&](journal_entry x) {
      if (auto row = std::get_if<journaled_batch>(&x))
        rows.push_back(std::move(*row));
    },
    [&](troupe::error x) { rows.damaged.push_back(std::move(x.message)); }));
  return rows;
}

const result& result::value_or_throw() const& {
  if (error)
    throw run_failed{*error};
  return *this;
}

result result::value_or_throw() && {
  (void) std::as_const(*this).value_or_throw();
  return std::move(*this);
}

expected<result> result::from_path(const fs::path& given) {
  if (given.empty())
    return failure(ec::invalid_argument, "the path of the run is empty");
  TROUPE_TRY(auto path, absolute_path(given));
  TROUPE_TRY_VOID(expect_run_folder(path));
  TROUPE_TRY(auto state, load_run(path));
  if (!state)
    return failure(ec::corrupt,
                   "the run " + path.string()
                     + " has lost its state.json; starting it again under the "
                       "same name rebuilds it from the checkpoints");
  return last_metrics(path).map([&](const troupe::metrics& values) {
    return make_result(*state, path, values).unpacked();
  });
}

} // namespace troupe
