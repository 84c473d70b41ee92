#include "troupe/runtime/store/saved_run.hpp"

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/storage/json_fields.hpp"

namespace troupe::internal {

namespace {

fs::path state_file(const fs::path& run_path) {
  return run_path / run_layout::state;
}

// The state is written with every checkpoint, so long metrics would make each
// commit slower than the one before. The manifests have them.
bool is_long(const packed_metrics& x) {
  std::size_t count = 0;
  return x.any_of([&](auto, const packed_metrics::value& value) {
    auto text = std::get_if<std::string_view>(&value);
    return ++count > 64 || (text && text->size() > 256);
  });
}

run_status_kind to_status(const json::document& x) {
  auto name = json::to_text(x);
  if (auto result = run_status_from_string(name))
    return *result;
  throw json::format_error{"no status is called '" + name + "'"};
}

score_order to_order(const json::document& x) {
  return json::to_text(x) == "min" ? score_order::min : score_order::max;
}

// One part of a path: a name that leads out of the folder is refused.
std::string to_folder_name(const json::document& x) {
  auto name = json::to_text(x);
  if (name == "." || name == ".." || name.find('/') != name.npos)
    throw json::format_error{"'" + name + "' is not the name of a folder"};
  return name;
}

checkpoint to_checkpoint(const json::document& x) {
  auto name = json::to_text(x);
  if (auto ok = validate_checkpoint_name(name); !ok)
    throw json::format_error{ok.error().message};
  return checkpoint::from_directory(name);
}

} // namespace

namespace json {

template <class Fields>
void fields_of(Fields& f, std::pair<int, rank_failure>& x) {
  auto& [rank, cause] = x;
  f("rank", rank);
  f("kind", number_of(cause.kind));
  f("code", cause.code)("pid", cause.pid)("host", cause.host);
  f("what", cause.what);
}

template <class Fields>
void fields_of(Fields& f, run_error& x) {
  f("code", number_of(x.code))("message", x.message);
  std::vector<std::pair<int, rank_failure>> ranks{x.ranks.begin(),
                                                  x.ranks.end()};
  f("ranks", ranks);
  if constexpr (Fields::is_reading)
    x.ranks = {ranks.begin(), ranks.end()};
}

// The folder's path is not in the state, so that a run can be moved.
template <class Fields>
void fields_of(Fields& f, kept_checkpoint& x) {
  f("name", text_as([&] { return x.data.name(); },
                    [&](const document& in) { x.data = to_checkpoint(in); }));
  f("index", x.index)("attempt", x.attempt);
  f("metrics", field_as{[&](std::string& out) {
                          if (is_long(x.values))
                            out += "null";
                          else
                            append(out, x.values);
                        },
                        [&](const document& in) {
                          if (!in.is_null())
                            x.values = to_metrics(in);
                        }});
}

template <class Fields>
void fields_of(Fields& f, doomed_checkpoint& x) {
  f("name", checked(x.name, to_folder_name));
  f("index", x.index)("attempt", x.attempt);
}

template <class Fields>
void fields_of(Fields& f, saved_run& x) {
  f.format(saved_run_format, 1);
  f("status", text_as([&] { return to_string(x.status); },
                      [&](const document& in) { x.status = to_status(in); }));
  f("next_attempt", x.next_attempt)("next_report", x.next_report);
  f.added("rank_failures", x.failures.ranks);
  f.added("start_failures", x.failures.starts);
  f.added("stop_reason", x.stop_reason);
  f.added("lost_after_ms", x.lost_after_ms);
  f.added("journal_unsynced", x.journal_unsynced);
  f("num_to_keep", x.retention.num_to_keep);
  f("score_attribute", x.retention.checkpoint_score_attribute);
  auto& order = x.retention.checkpoint_score_order;
  f("score_order", text_as([&] { return to_string(order); },
                           [&](const document& in) { order = to_order(in); }));
  f("error", x.error)("checkpoints", x.checkpoints);
  f.added("doomed", x.doomed);
  f.added("rotten", list_of(x.rotten, append_text, to_folder_name));
}

} // namespace json

namespace {

/// Reads the metrics of *x* from its manifest in *folder*. Changes nothing if
/// that is missing or damaged, which is detected when the files are read.
expected<void> read_values(kept_checkpoint& x, const held_folder& folder) {
  TROUPE_TRY(auto found,
             folder.look_up_link(fs::path{x.data.name()} / manifest_file_name));
  if (!found.exists())
    return {};
  auto its = read_manifest(folder, x.data.name());
  if (!its && its.error().code == ec::storage)
    return tl::unexpected{its.error()};
  if (its && its->index == x.index && its->attempt == x.attempt)
    x.values = its->first_values();
  return {};
}

expected<saved_run> read_long_values(saved_run x, const held_folder& run,
                                     const std::vector<std::size_t>& lacking) {
  if (lacking.empty())
    return x;
  TROUPE_TRY(auto found, run.look_up_link(run_layout::checkpoints));
  if (!found.exists())
    return x;
  TROUPE_TRY(auto folder, run.existing(run_layout::checkpoints));
  for (auto i : lacking)
    TROUPE_TRY_VOID(read_values(x.checkpoints[i], folder));
  return x;
}

} // namespace

std::string to_json(const saved_run& x) {
  auto out = json::open_object(x);
  append_sum(out);
  return out;
}

expected<saved_run> saved_run_from_json(const std::string& text,
                                        const held_folder& run,
                                        std::size_t newest) {
  auto what = state_file(run.path()).string();
  std::vector<std::size_t> lacking;
  auto read = [&] {
    return json::read<saved_run>(text, what, [&](const json::document& x) {
      auto result = json::from_fields<saved_run>(x);
      if (!result.retention.checkpoint_score_attribute.empty())
        newest = all_checkpoints;
      auto count = result.checkpoints.size();
      for (std::size_t i = 0; i < count; ++i) {
        auto& data = result.checkpoints[i].data;
        data = checkpoint::from_directory(run.path() / run_layout::checkpoints
                                          / data.name());
        if (count - i <= newest && x["checkpoints"][i]["metrics"].is_null())
          lacking.push_back(i);
      }
      return result;
    });
  };
  TROUPE_TRY(auto state, verify_sum(text, what).and_then(read));
  return read_long_values(std::move(state), run, lacking);
}

expected<std::optional<saved_run>> load_run(const fs::path& run_path,
                                            std::size_t newest) {
  TROUPE_TRY(auto found, look_up_link(state_file(run_path)));
  if (!found.exists())
    return std::optional<saved_run>{};
  TROUPE_TRY(auto run, held_folder::follow(run_path));
  TROUPE_TRY(auto text, read_file(state_file(run_path), max_state_bytes));
  return saved_run_from_json(text, run, newest).map([](saved_run x) {
    return std::optional{std::move(x)};
  });
}

} // namespace troupe::internal
