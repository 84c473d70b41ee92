#include "troupe/callbacks/mlflow/mlflow_sink.hpp"

#include <algorithm>
#include <cstdio>

#include "troupe/callbacks/mlflow/mlflow.hpp"
#include "troupe/callbacks/mlflow/mlflow_names.hpp"
#include "troupe/callbacks/mlflow/mlflow_server.hpp"
#include "troupe/callbacks/mlflow/mlflow_settings.hpp"
#include "troupe/callbacks/mlflow/mlflow_tree.hpp"
#include "troupe/callbacks/tracking/given_settings.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/callbacks/tracking/tracker.hpp"
#include "troupe/runtime/checkpoint/manifest.hpp"
#include "troupe/runtime/run_layout.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal {

namespace {

using kind = sink_failure::kind;

// Whether a record is more than values and tags.
bool has_files(const tracker_record& x, bool with_checkpoints) {
  if (auto* row = std::get_if<journaled_batch>(&x.content))
    return with_checkpoints && !row->checkpoint.empty();
  return std::holds_alternative<logged_text>(x.content)
         || std::holds_alternative<logged_image>(x.content)
         || std::holds_alternative<logged_histogram>(x.content)
         || std::holds_alternative<logged_artifact>(x.content)
         || std::holds_alternative<logged_params>(x.content);
}

std::string histogram_json(const logged_histogram& x) {
  return json::text_of({{"name", x.name},
                        {"step", x.step},
                        {"min", x.min},
                        {"max", x.max},
                        {"sum", x.sum},
                        {"sum_squares", x.sum_squares},
                        {"limits", x.limits},
                        {"counts", x.counts}},
                       2);
}

expected<void> check_tags(const std::string& text) {
  if (text.empty() || json::parse(text).is_object())
    return {};
  return failure(
    ec::invalid_config,
    "MLFLOW_TAGS is not a JSON object: write {\"name\": \"value\"}");
}

std::unique_ptr<mlflow_store> open_store(const mlflow_settings& settings,
                                         const std::stop_token& cancelled) {
  if (settings.server.empty())
    return std::make_unique<mlflow_tree>(settings.tree, cancelled);
  return std::make_unique<mlflow_server>(settings, cancelled);
}

std::string tree_note(const std::string& tree) {
  return concat("the run is in the file store ", tree,
                "; MLflow 3.13 and later show it with "
                "MLFLOW_ALLOW_FILE_STORE=true, or convert it: mlflow "
                "migrate-filestore --source '",
                tree, "' --target sqlite:///mlflow.db");
}

} // namespace

// Values to be sent, and where those of each record end.
struct mlflow_sink::gathered {
  std::vector<mlflow_metric> metrics;
  std::map<std::string, std::string> tags;
  std::vector<std::size_t> ends; ///< Number of metrics after each record.
};

mlflow_sink::mlflow_sink(mlflow_options options)
  : options_(std::move(options)) {}

std::string mlflow_sink::options() const {
  return to_json(options_);
}

expected<void> mlflow_sink::check(const tracked_run& run) const {
  TROUPE_TRY(auto settings, resolve_mlflow(options_, mlflow_home(run)));
  auto& named = options_.experiment;
  if (settings.databricks && !named.empty() && !named.starts_with('/'))
    return failure(ec::invalid_config,
                   "the experiment '" + named
                     + "' is not an absolute path, which Databricks requires: "
                       "give one like /Shared/"
                     + named);
  return check_tags(environment_variable("MLFLOW_TAGS"));
}

sink_result mlflow_sink::start(const tracked_run& run,
                               const std::string& state) {
  auto settings = resolve_mlflow(options_, mlflow_home(run));
  if (!settings)
    return sink_fails(kind::permanent, settings.error());
  run_path_ = run.path;
  store_ = open_store(*settings, run.cancelled);
  names_ = {};
  texts_.clear();
  std::string of_store;
  if (auto x = json::parse(state); x.is_object()) {
    of_store = x.value("store", "");
    names_ = mlflow_names{x.value("names", mlflow_names::map_type{})};
  }
  tagged_names_ = names_.changed().size();
  auto described = describe_mlflow_run(options_, run);
  TROUPE_TRY_VOID(nest(described, run, *settings));
  TROUPE_TRY_VOID(store_->open(described, of_store));
  auto done = log_params(run.config);
  if (!done && done.error().what == kind::rejected)
    done = log_params_singly(run.config);
  if (done && !settings->tree.empty() && !std::exchange(announced_, true))
    notes_.push_back(tree_note(settings->tree.string()));
  return done;
}

sink_result mlflow_sink::nest(mlflow_run& to, const tracked_run& run,
                              const mlflow_settings& settings) {
  parent_.reset();
  auto parent = describe_mlflow_parent(options_, run);
  if (!parent)
    return {};
  TROUPE_TRY(parent_, mlflow_parent::open(open_store(settings, run.cancelled),
                                          *parent, run.cancelled));
  to.tags.push_back({mlflow_parent_tag, parent_->id()});
  return {};
}

sink_result mlflow_sink::log_params_singly(const metrics& values) {
  for (auto& [name, value] : values) {
    auto done = log_params(metrics{{name, value}});
    if (done)
      continue;
    if (done.error().what != kind::rejected)
      return done;
    auto key = clean_mlflow_name("troupe.param_refused." + names_(name));
    auto kept =
      set_tag(key, cut_mlflow_text(mlflow_text(value), max_mlflow_tag));
    if (!kept && kept.error().what != kind::rejected)
      return kept;
    notes_.push_back(
      "the server refuses the setting '" + name + "', "
      + (kept ? "which becomes the tag " + key : std::string{"as a tag, too"})
      + ": " + done.error().reason.message);
  }
  return {};
}

sink_result mlflow_sink::log_params(const metrics& values) {
  std::vector<mlflow_pair> params;
  std::vector<mlflow_pair> changed;
  auto& known = store_->params();
  for (auto& [name, value] : values) {
    const mlflow_pair x{names_(name),
                        cut_mlflow_text(mlflow_text(value), max_mlflow_param)};
    auto old = known.find(x.key);
    if (old == known.end())
      params.push_back(x);
    else if (old->second != x.value)
      changed.push_back({clean_mlflow_name("troupe.param_changed." + x.key),
                         cut_mlflow_text(x.value, max_mlflow_tag)});
  }
  TROUPE_TRY_VOID(tag_changed_names());
  if (!changed.empty())
    TROUPE_TRY_VOID(store_->set_tags(changed));
  if (params.empty())
    return {};
  return store_->log_params(params);
}

sink_result mlflow_sink::tag_changed_names() {
  auto& changed = names_.changed();
  if (changed.size() == tagged_names_)
    return {};
  std::vector<mlflow_pair> tags;
  for (auto& [name, given] : changed)
    tags.push_back({clean_mlflow_name("troupe.name." + given),
                    cut_mlflow_text(mlflow_text(name), max_mlflow_tag)});
  TROUPE_TRY_VOID(store_->set_tags(tags));
  tagged_names_ = changed.size();
  return {};
}

sink_result mlflow_sink::log(std::span<const tracker_record> records) {
  gathered batch;
  std::size_t done = 0; // Records before the batch.
  auto flush_before = [&](std::size_t next) {
    auto ok = flush(batch);
    if (!ok)
      ok.error().accepted += done;
    batch = {};
    done = next;
    return ok;
  };
  for (std::size_t i = 0; i < records.size(); ++i) {
    // In order: the values before a file are sent before it, those of its own
    // record alone, to be sent again if the file fails.
    auto with_files = has_files(records[i], options_.upload_checkpoints);
    if (with_files)
      TROUPE_TRY_VOID(flush_before(i));
    gather(records[i], batch);
    if (!with_files)
      continue;
    TROUPE_TRY_VOID(flush_before(i));
    if (auto ok = log_files(records[i]); !ok) {
      // One that is refused alone is not given again.
      if (ok.error().what != kind::rejected || records.size() > 1)
        store_->expect_metrics_again();
      ok.error().accepted = i;
      return ok;
    }
    done = i + 1;
  }
  return flush_before(records.size());
}

void mlflow_sink::gather(const tracker_record& record, gathered& to) {
  auto time = unix_ms(record.time);
  if (auto* row = std::get_if<journaled_batch>(&record.content)) {
    gather(values_of(*row, options_.ranks),
           static_cast<std::int64_t>(row->index), time, to);
    if (!row->checkpoint.empty())
      to.tags["troupe.checkpoint"] =
        (run_path_ / run_layout::checkpoints / row->checkpoint).string();
  } else if (auto* logged = std::get_if<logged_metrics>(&record.content)) {
    gather(logged->values, logged->step, time, to);
  } else if (std::holds_alternative<attempt_record>(record.content)) {
    to.tags["troupe.attempt"] = std::to_string(record.attempt);
  }
  to.ends.push_back(to.metrics.size());
}

void mlflow_sink::gather(const metrics& values, std::int64_t step,
                         std::int64_t time_ms, gathered& to) {
  for (auto& [name, value] : values) {
    if (!value.is_number()) {
      to.tags[names_(name)] =
        cut_mlflow_text(mlflow_text(value), max_mlflow_tag);
      continue;
    }
    if (is_sent(options_.non_finite, value))
      to.metrics.push_back({names_(name), value.number(), time_ms, step});
  }
}

// Tags go first: sent twice they do no harm, and the metrics then show how many
// records were accepted.
sink_result mlflow_sink::flush(gathered& x) {
  TROUPE_TRY_VOID(tag_changed_names());
  std::vector<mlflow_pair> tags;
  for (auto& [key, value] : x.tags)
    if (auto i = texts_.find(key); i == texts_.end() || i->second != value)
      tags.push_back({key, value});
  TROUPE_TRY_VOID(store_->set_tags(tags));
  for (auto& tag : tags)
    texts_[tag.key] = tag.value;
  auto ok = store_->log_metrics(x.metrics);
  if (!ok) {
    auto sent = ok.error().accepted;
    ok.error().accepted = static_cast<std::size_t>(
      std::ranges::count_if(x.ends, [&](auto end) { return end <= sent; }));
  }
  return ok;
}

sink_result mlflow_sink::log_files(const tracker_record& record) {
  if (auto* params = std::get_if<logged_params>(&record.content))
    return log_params(params->values);
  if (auto* x = std::get_if<logged_text>(&record.content))
    return put_text(
      x->text, artifact_path(concat("texts/", x->name, "/", x->step, ".txt")));
  if (auto* x = std::get_if<logged_histogram>(&record.content))
    return put_text(
      histogram_json(*x),
      artifact_path(concat("histograms/", x->name, "/", x->step, ".json")));
  if (auto* x = std::get_if<logged_image>(&record.content))
    return put_image(*x, record);
  if (auto* x = std::get_if<logged_artifact>(&record.content))
    return put(x->path, artifact_path(x->name));
  return put_checkpoint(std::get<journaled_batch>(record.content));
}

// The manifest comes last: a copy without it is not complete.
sink_result mlflow_sink::put_checkpoint(const journaled_batch& row) {
  auto checkpoint = run_path_ / run_layout::checkpoints / row.checkpoint;
  auto name = artifact_path("checkpoints/" + row.checkpoint);
  auto last = concat(name, '/', manifest_file_name);
  // Without it: `num_to_keep` removed it, and another may have its name.
  auto look = [&] {
    return read_manifest(checkpoint)
      .map([&](const manifest& x) {
        return x.index == row.index && x.attempt == row.attempt;
      })
      .or_else([](const error& x) -> expected<bool> {
        return x.code == ec::corrupt ? expected<bool>{false}
                                     : tl::unexpected{x};
      });
  };
  auto skip = [&] {
    return store_->has_file(last) ? sink_result{} : store_->remove(name);
  };
  auto is_there = look();
  if (!is_there)
    return tl::unexpected{
      unreadable_file(checkpoint / manifest_file_name, is_there.error())};
  if (!*is_there)
    return skip();
  TROUPE_TRY_VOID(store_->remove(last)); // Of an earlier one of this name.
  auto ok = put(checkpoint, name);
  if (ok)
    return ok;
  // Or it was removed meanwhile.
  is_there = look();
  return is_there && !*is_there ? skip() : ok;
}

sink_result mlflow_sink::put(const fs::path& path, const std::string& name) {
  auto found = look_up(path);
  if (!found)
    return tl::unexpected{unreadable_file(path, found.error())};
  if (found->is_file())
    return store_->put_file(path, name);
  if (!found->is_folder())
    return sink_fails(
      kind::rejected,
      {ec::storage, path.string() + " is no longer a file or a folder"});
  auto files = files_below(path);
  if (!files)
    return tl::unexpected{unreadable_file(path, files.error())};
  std::ranges::stable_partition(*files, [&](const fs::path& file) {
    return file != path / manifest_file_name;
  });
  for (auto& file : *files)
    TROUPE_TRY_VOID(store_->put_file(
      file, artifact_path(name + "/"
                          + file.lexically_relative(path).generic_string())));
  return {};
}

sink_result mlflow_sink::put_text(const std::string& text,
                                  const std::string& name) {
  auto file = run_path_ / run_layout::sinks / "mlflow.text";
  boost::system::error_code failed;
  if (auto ok = replace_file(file, text); !ok)
    return sink_fails(kind::transient, ok.error());
  auto result = store_->put_file(file, name);
  fs::remove(file, failed);
  return result;
}

// Names the image as MLflow's own client does, so that its pages show it by
// step. The id that the client draws at random is derived from the record here,
// so that sending it again replaces it.
sink_result mlflow_sink::put_image(const logged_image& x,
                                   const tracker_record& record) {
  auto key = artifact_path(x.name);
  std::ranges::replace(key, '/', '_');
  char unique[37];
  std::snprintf(unique, sizeof(unique), "00000000-0000-4000-8000-%012llx",
                static_cast<unsigned long long>(record.end)
                  & 0xFFFFFFFFFFFFull);
  auto name = concat("images/", key, "+step+", x.step, "+timestamp+",
                     unix_ms(record.time), "+", unique, ".png");
  TROUPE_TRY_VOID(put(x.file, name));
  return set_tag("mlflow.loggedImages", "True");
}

sink_result mlflow_sink::set_tag(const std::string& key,
                                 const std::string& value) {
  if (texts_[key] == value)
    return {};
  const mlflow_pair tag{key, value};
  auto ok = store_->set_tags({&tag, 1});
  if (ok)
    texts_[key] = value;
  return ok;
}

sink_result mlflow_sink::finish(run_status_kind status,
                                std::chrono::system_clock::time_point time) {
  auto ok = store_->end(status, unix_ms(time));
  if (ok && parent_)
    ok = parent_->end(status, unix_ms(time));
  return ok;
}

std::string mlflow_sink::state() const {
  if (!store_)
    return {};
  return json::text_of(
    json::document{{"store", store_->state()}, {"names", names_.changed()}});
}

} // namespace troupe::internal

namespace troupe {

std::shared_ptr<tracker> mlflow_tracker(mlflow_options options,
                                        tracker_options tracking) {
  return internal::make_tracker<internal::mlflow_sink>(std::move(options),
                                                       tracking);
}

} // namespace troupe
