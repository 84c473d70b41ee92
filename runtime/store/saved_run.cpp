#include "troupe/runtime/store/saved_run.hpp"

#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/held_folder.hpp"
#include "troupe/runtime/storage/json.hpp"

namespace troupe::internal {

namespace {

fs::path state_file(const fs::path& run_path) {
  return run_path / "state.json";
}

void append_failure(std::string& out, int rank, const rank_failure& x) {
  json::object_writer{out}
    .field("rank", rank)
    .field("kind", static_cast<int>(x.kind))
    .field("code", x.code)
    .field("pid", x.pid)
    .field("host", x.host)
    .field("what", x.what)
    .end();
}

void append_error(std::string& out, const run_error& x) {
  json::object_writer{out}
    .field("code", static_cast<int>(x.code))
    .field("message", x.message)
    .array_field("ranks", x.ranks,
                 [](auto& text, auto& one) {
                   append_failure(text, one.first, one.second);
                 })
    .end();
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

void append_checkpoint(std::string& out, const kept_checkpoint& x) {
  json::object_writer to{out};
  to.field("name", x.data.name())
    .field("index", x.index)
    .field("attempt", x.attempt);
  if (is_long(x.values))
    to.null_field("metrics");
  else
    to.field("metrics", x.values);
  to.end();
}

void append_doomed(std::string& out, const doomed_checkpoint& x) {
  json::object_writer{out}
    .field("name", x.name)
    .field("index", x.index)
    .field("attempt", x.attempt)
    .end();
}

int to_int(const json::document& x) {
  if (!x.is_number_integer())
    throw json::format_error{x.dump() + " is not an integer"};
  return x.get<int>();
}

run_status_kind to_status(const json::document& x) {
  auto name = json::to_text(x);
  if (auto result = run_status_from_string(name))
    return *result;
  throw json::format_error{"no status is called '" + name + "'"};
}

// Runs of earlier versions did not keep them.
failure_counts to_failures(const json::document& x) {
  failure_counts result;
  if (x.contains("rank_failures"))
    result.ranks =
      static_cast<std::int64_t>(json::to_unsigned(x["rank_failures"]));
  if (x.contains("start_failures"))
    result.starts =
      static_cast<std::int64_t>(json::to_unsigned(x["start_failures"]));
  return result;
}

checkpoint_config to_retention(const json::document& x) {
  checkpoint_config result;
  if (auto& keep = json::field(x, "num_to_keep"); !keep.is_null())
    result.num_to_keep = to_int(keep);
  result.checkpoint_score_attribute =
    json::to_text(json::field(x, "score_attribute"));
  if (json::to_text(json::field(x, "score_order")) == "min")
    result.checkpoint_score_order = score_order::min;
  return result;
}

run_error to_run_error(const json::document& x) {
  run_error result;
  result.code = json::to_enum(json::field(x, "code"), last_ec);
  result.message = json::to_text(json::field(x, "message"));
  for (auto& cause : json::field(x, "ranks")) {
    auto& to = result.ranks[to_int(json::field(cause, "rank"))];
    to.kind = json::to_enum(json::field(cause, "kind"),
                            rank_failure::kind_type::misuse);
    to.code = to_int(json::field(cause, "code"));
    to.pid = to_int(json::field(cause, "pid"));
    to.host = json::to_text(json::field(cause, "host"));
    to.what = json::to_text(json::field(cause, "what"));
  }
  return result;
}

// One part of a path: a name that leads out of the folder is refused.
std::string to_folder_name(const json::document& x) {
  auto name = json::to_text(x);
  if (name == "." || name == ".." || name.find('/') != name.npos)
    throw json::format_error{"'" + name + "' is not the name of a folder"};
  return name;
}

// States of an earlier version have neither list.
void read_removals(saved_run& to, const json::document& x) {
  if (x.contains("doomed"))
    for (auto& one : x["doomed"])
      to.doomed.push_back({to_folder_name(json::field(one, "name")),
                           json::to_unsigned(json::field(one, "index")),
                           json::to_unsigned(json::field(one, "attempt"))});
  if (x.contains("rotten"))
    for (auto& name : x["rotten"])
      to.rotten.push_back(to_folder_name(name));
}

bool has_values(const json::document& x) {
  return !json::field(x, "metrics").is_null();
}

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
  TROUPE_TRY(auto found, run.look_up_link("checkpoints"));
  if (!found.exists())
    return x;
  TROUPE_TRY(auto folder, run.existing("checkpoints"));
  for (auto i : lacking)
    TROUPE_TRY_VOID(read_values(x.checkpoints[i], folder));
  return x;
}

kept_checkpoint to_checkpoint(const json::document& x,
                              const fs::path& run_path) {
  auto name = json::to_text(json::field(x, "name"));
  if (auto ok = validate_checkpoint_name(name); !ok)
    throw json::format_error{ok.error().message};
  return {checkpoint::from_directory(run_path / "checkpoints" / name),
          has_values(x) ? json::to_metrics(x["metrics"]) : packed_metrics{},
          json::to_unsigned(json::field(x, "index")),
          json::to_unsigned(json::field(x, "attempt"))};
}

} // namespace

std::string to_json(const saved_run& x) {
  std::string out;
  json::object_writer to{out, ",\n"};
  to.field("format", saved_run_format)
    .field("status", to_string(x.status))
    .field("next_attempt", x.next_attempt)
    .field("next_report", x.next_report)
    .field("rank_failures", x.failures.ranks)
    .field("start_failures", x.failures.starts);
  if (x.retention.num_to_keep)
    to.field("num_to_keep", *x.retention.num_to_keep);
  else
    to.null_field("num_to_keep");
  auto by_maximum = x.retention.checkpoint_score_order == score_order::max;
  to.field("score_attribute", x.retention.checkpoint_score_attribute)
    .field("score_order", by_maximum ? "max" : "min");
  if (x.error)
    append_error(to.begin("error"), *x.error);
  else
    to.null_field("error");
  to.array_field("checkpoints", x.checkpoints, append_checkpoint, ",\n")
    .array_field("doomed", x.doomed, append_doomed, ",\n")
    .array_field("rotten", x.rotten, json::append_text);
  append_sum(out);
  return out;
}

expected<saved_run> saved_run_from_json(const std::string& text,
                                        const held_folder& run) {
  auto what = state_file(run.path()).string();
  std::vector<std::size_t> lacking;
  auto state = verify_sum(text, what).and_then([&] {
    return json::read<saved_run>(text, what, [&](const json::document& x) {
      json::check_format(x, saved_run_format, "format", 1);
      saved_run result;
      result.status = to_status(json::field(x, "status"));
      result.next_attempt = json::to_unsigned(json::field(x, "next_attempt"));
      result.next_report = json::to_unsigned(json::field(x, "next_report"));
      result.failures = to_failures(x);
      result.retention = to_retention(x);
      if (auto& reason = json::field(x, "error"); !reason.is_null())
        result.error = to_run_error(reason);
      for (auto& one : json::field(x, "checkpoints")) {
        if (!has_values(one))
          lacking.push_back(result.checkpoints.size());
        result.checkpoints.push_back(to_checkpoint(one, run.path()));
      }
      read_removals(result, x);
      return result;
    });
  });
  if (!state)
    return state;
  return read_long_values(std::move(*state), run, lacking);
}

expected<std::optional<saved_run>> load_run(const fs::path& run_path) {
  TROUPE_TRY(auto found, look_up_link(state_file(run_path)));
  if (!found.exists())
    return std::optional<saved_run>{};
  TROUPE_TRY(auto run, held_folder::follow(run_path));
  TROUPE_TRY(auto text, read_file(state_file(run_path), max_state_bytes));
  return saved_run_from_json(text, run).map(
    [](saved_run x) { return std::optional{std::move(x)}; });
}

} // namespace troupe::internal
