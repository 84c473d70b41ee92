#include "troupe/callbacks/wandb/wandb_records.hpp"

#include <cmath>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/callbacks/encoding/text.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/whole_number.hpp"

namespace troupe::internal {

namespace {

// Fields of W&B's messages, as wandb_internal.proto names them:
// `<message>_<field>`.
namespace wandb_field {

enum : std::uint32_t {
  record_num = 1,
  record_history = 2,
  record_summary = 3,
  record_config = 5,
  record_files = 6,
  record_stats = 7,
  record_output_raw = 13,
  record_run = 17,
  record_exit = 18,
  record_header = 21,
  record_environment = 26,

  // of HistoryItem, SummaryItem, ConfigItem and StatsItem
  item_key = 1,
  item_nested_key = 2,
  item_value_json = 16,

  history_item = 1,
  history_step = 2,
  history_step_num = 1,
  summary_update = 1,
  config_update = 1,
  stats_timestamp = 2,
  stats_item = 3,

  output_type = 1,
  output_timestamp = 2,
  output_line = 3,

  files_files = 1,
  file_path = 1,
  file_type = 3,

  run_id = 1,
  run_entity = 2,
  run_project = 3,
  run_config = 4,
  run_group = 6,
  run_job_type = 7,
  run_display_name = 8,
  run_notes = 9,
  run_tags = 10,
  run_host = 13,
  run_start_time = 17,
  run_resume = 24,

  environment_os = 1,
  environment_started_at = 3,
  environment_program = 6,
  environment_host = 12,
  environment_username = 13,
  environment_cpu_count = 16,
  environment_cpu_count_logical = 17,
  environment_memory = 21,
  memory_total = 1,

  header_version_info = 1,
  version_producer = 1,

  exit_code = 1,
  exit_runtime = 2,

  // of google.protobuf.Timestamp
  timestamp_seconds = 1,
  timestamp_nanos = 2,
};

// Of the enumerations OutputType and FileType.
constexpr std::uint64_t output_stdout = 1;
constexpr std::uint64_t file_wandb = 1, file_media = 2;

} // namespace wandb_field

void add_text(protobuf_writer& out, std::uint32_t field, std::string_view x) {
  if (!x.empty())
    out.add_bytes(field, utf8_text(x));
}

void add_items(protobuf_writer& out, std::uint32_t field,
               std::span<const wandb_item> items) {
  for (auto& x : items)
    add_message(out, field, [&](protobuf_writer& item) {
      if (x.part.empty()) {
        item.add_bytes(wandb_field::item_key, utf8_text(x.key));
      } else {
        item.add_bytes(wandb_field::item_nested_key, utf8_text(x.key));
        item.add_bytes(wandb_field::item_nested_key, x.part);
      }
      item.add_bytes(wandb_field::item_value_json, x.json);
    });
}

void add_time(protobuf_writer& out, std::uint32_t field,
              wandb_records::clock::time_point x) {
  using namespace std::chrono;
  add_message(out, field, [&](protobuf_writer& time) {
    auto whole = floor<seconds>(x);
    time.add_int64(wandb_field::timestamp_seconds,
                   whole.time_since_epoch().count());
    if (auto rest = duration_cast<nanoseconds>(x - whole).count())
      time.add_int64(wandb_field::timestamp_nanos, rest);
  });
}

constexpr auto with_length = protozero::pbf_wire_type::length_delimited;

constexpr std::uint32_t bytes_of(std::uint32_t field) {
  return protozero::tag_and_type(field, with_length);
}

struct seen_item {
  std::string_view key;
  std::optional<std::int64_t> number;
};

seen_item see_item(std::string_view item) {
  std::string_view key, json;
  for (protobuf_reader x{item}; x.next();)
    switch (x.tag_and_type()) {
      case bytes_of(wandb_field::item_key):
        key = x.get_view();
        break;
      case bytes_of(wandb_field::item_value_json):
        json = x.get_view();
        break;
      default:
        x.skip();
    }
  return {key, whole_number<std::int64_t>(json)};
}

void see_row_item(wandb_seen& result, const seen_item& x) {
  auto* target = x.key == "_step"            ? &result.step
                 : x.key == wandb_report_key ? &result.report
                 : x.key == wandb_logged_key ? &result.logged
                                             : nullptr;
  if (target && x.number)
    *target = *x.number;
}

} // namespace

std::string wandb_json(const metric_value& x) {
  std::string result;
  auto number = std::get_if<double>(&x.variant());
  if (!number) {
    append_json(result, x);
    return result;
  }
  if (!std::isfinite(*number))
    return std::string{json_words.of(*number)};
  append_real(result, *number);
  return result;
}

std::string wandb_config_json(const metric_value& x) {
  auto number = std::get_if<double>(&x.variant());
  return number && !std::isfinite(*number) ? "null" : wandb_json(x);
}

template <class Body>
std::string wandb_records::record(std::uint32_t field, Body body) {
  std::string result;
  protobuf_writer out{result};
  out.add_int64(wandb_field::record_num, ++last_);
  add_message(out, field, body);
  return result;
}

std::string wandb_records::header() {
  return record(wandb_field::record_header, [](protobuf_writer& header) {
    add_message(header, wandb_field::header_version_info,
                [](protobuf_writer& version) {
                  version.add_string(wandb_field::version_producer, "troupe");
                });
  });
}

std::string wandb_records::run(const wandb_run& x) {
  return record(wandb_field::record_run, [&](protobuf_writer& run) {
    add_text(run, wandb_field::run_id, x.id);
    add_text(run, wandb_field::run_entity, x.entity);
    add_text(run, wandb_field::run_project, x.project);
    add_message(run, wandb_field::run_config, [&](protobuf_writer& config) {
      add_items(config, wandb_field::config_update, x.config);
    });
    add_text(run, wandb_field::run_group, x.group);
    add_text(run, wandb_field::run_job_type, x.job_type);
    add_text(run, wandb_field::run_display_name, x.name);
    add_text(run, wandb_field::run_notes, x.notes);
    for (auto& tag : x.tags)
      add_text(run, wandb_field::run_tags, tag);
    add_text(run, wandb_field::run_host, x.host);
    add_time(run, wandb_field::run_start_time, x.start_time);
    if (x.resume)
      run.add_uint64(wandb_field::run_resume, 1);
  });
}

std::string wandb_records::environment(const wandb_environment& x,
                                       clock::time_point start) {
  return record(wandb_field::record_environment, [&](protobuf_writer& out) {
    add_text(out, wandb_field::environment_os, x.os);
    add_time(out, wandb_field::environment_started_at, start);
    add_text(out, wandb_field::environment_program, x.program);
    add_text(out, wandb_field::environment_host, x.host);
    add_text(out, wandb_field::environment_username, x.user);
    out.add_uint64(wandb_field::environment_cpu_count, x.cpus);
    out.add_uint64(wandb_field::environment_cpu_count_logical, x.cpus);
    add_message(out, wandb_field::environment_memory,
                [&](protobuf_writer& memory) {
                  memory.add_uint64(wandb_field::memory_total, x.memory);
                });
  });
}

std::string wandb_records::config(std::span<const wandb_item> items) {
  return record(wandb_field::record_config, [&](protobuf_writer& out) {
    add_items(out, wandb_field::config_update, items);
  });
}

std::string wandb_records::history(std::int64_t step,
                                   std::span<const wandb_item> items) {
  return record(wandb_field::record_history, [&](protobuf_writer& out) {
    add_items(out, wandb_field::history_item, items);
    add_message(out, wandb_field::history_step, [&](protobuf_writer& x) {
      x.add_int64(wandb_field::history_step_num, step);
    });
  });
}

std::string wandb_records::summary(std::span<const wandb_item> items) {
  return record(wandb_field::record_summary, [&](protobuf_writer& out) {
    add_items(out, wandb_field::summary_update, items);
  });
}

std::string wandb_records::stats(clock::time_point time,
                                 std::span<const wandb_item> items) {
  return record(wandb_field::record_stats, [&](protobuf_writer& out) {
    add_time(out, wandb_field::stats_timestamp, time);
    add_items(out, wandb_field::stats_item, items);
  });
}

std::string wandb_records::output(clock::time_point time,
                                  std::string_view line) {
  return record(wandb_field::record_output_raw, [&](protobuf_writer& out) {
    out.add_uint64(wandb_field::output_type, wandb_field::output_stdout);
    add_time(out, wandb_field::output_timestamp, time);
    add_text(out, wandb_field::output_line, line);
  });
}

std::string wandb_records::file(std::string_view path, bool is_media) {
  return record(wandb_field::record_files, [&](protobuf_writer& out) {
    add_message(out, wandb_field::files_files, [&](protobuf_writer& file) {
      add_text(file, wandb_field::file_path, path);
      file.add_uint64(wandb_field::file_type, is_media
                                                ? wandb_field::file_media
                                                : wandb_field::file_wandb);
    });
  });
}

std::string wandb_records::exit(int code, std::chrono::seconds runtime) {
  return record(wandb_field::record_exit, [&](protobuf_writer& out) {
    out.add_int64(wandb_field::exit_code, code);
    if (runtime.count() > 0)
      out.add_int64(wandb_field::exit_runtime, runtime.count());
  });
}

wandb_seen see_wandb_record(std::string_view record) try {
  wandb_seen result;
  for (protobuf_reader x{record}; x.next();)
    switch (x.tag_and_type()) {
      case bytes_of(wandb_field::record_history):
        for (auto row = x.get_message();
             row.next(wandb_field::history_item, with_length);)
          see_row_item(result, see_item(row.get_view()));
        break;
      case bytes_of(wandb_field::record_config):
        for (auto config = x.get_message();
             config.next(wandb_field::config_update, with_length);)
          if (auto item = see_item(config.get_view());
              item.key == wandb_attempt_key)
            result.attempt = item.number;
        break;
      case bytes_of(wandb_field::record_exit):
        result.exit = true;
        [[fallthrough]];
      default:
        x.skip();
    }
  return result;
} catch (const protozero::exception&) {
  return {};
}

} // namespace troupe::internal
