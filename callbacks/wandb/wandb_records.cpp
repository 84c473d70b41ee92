#include "troupe/callbacks/wandb/wandb_records.hpp"

#include <charconv>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/callbacks/encoding/text.hpp"

namespace troupe {

namespace {

/// Kinds of records by their field numbers.
enum record_field : std::uint32_t {
  history_field = 2,
  summary_field = 3,
  config_field = 5,
  files_field = 6,
  stats_field = 7,
  output_raw_field = 13,
  run_field = 17,
  exit_field = 18,
  header_field = 21,
  environment_field = 26,
};

constexpr std::uint32_t item_key = 1, item_nested_key = 2, item_json = 16;
constexpr std::uint32_t history_item = 1, history_step = 2;
constexpr std::uint64_t stdout_type = 1;
constexpr std::uint64_t wandb_file_type = 1, media_type = 2;

void add_text(protobuf_writer& out, std::uint32_t field, std::string_view x) {
  if (!x.empty())
    out.add_bytes(field, utf8_text(x));
}

void add_items(protobuf_writer& out, std::uint32_t field,
               std::span<const wandb_item> items) {
  for (auto& x : items)
    out.add_message(field, [&](protobuf_writer& item) {
      if (x.part.empty()) {
        item.add_bytes(item_key, utf8_text(x.key));
      } else {
        item.add_bytes(item_nested_key, utf8_text(x.key));
        item.add_bytes(item_nested_key, x.part);
      }
      item.add_bytes(item_json, x.json);
    });
}

void add_time(protobuf_writer& out, std::uint32_t field,
              wandb_records::clock::time_point x) {
  using namespace std::chrono;
  out.add_message(field, [&](protobuf_writer& time) {
    auto whole = floor<seconds>(x);
    time.add_int(1, whole.time_since_epoch().count());
    if (auto rest = duration_cast<nanoseconds>(x - whole).count())
      time.add_int(2, rest);
  });
}

} // namespace

template <class Body>
std::string wandb_records::record(std::uint32_t field, Body body) {
  std::string result;
  protobuf_writer out{result};
  out.add_int(1, ++last_);
  out.add_message(field, body);
  return result;
}

std::string wandb_records::header() {
  return record(header_field, [](protobuf_writer& header) {
    header.add_message(
      1, [](protobuf_writer& version) { version.add_bytes(1, "troupe"); });
  });
}

std::string wandb_records::run(const wandb_run& x) {
  return record(run_field, [&](protobuf_writer& run) {
    add_text(run, 1, x.id);
    add_text(run, 2, x.entity);
    add_text(run, 3, x.project);
    run.add_message(
      4, [&](protobuf_writer& config) { add_items(config, 1, x.config); });
    add_text(run, 6, x.group);
    add_text(run, 7, x.job_type);
    add_text(run, 8, x.name);
    add_text(run, 9, x.notes);
    for (auto& tag : x.tags)
      add_text(run, 10, tag);
    add_text(run, 13, x.host);
    add_time(run, 17, x.start_time);
    if (x.resume)
      run.add_varint(24, 1);
  });
}

std::string wandb_records::environment(const wandb_environment& x,
                                       clock::time_point start) {
  return record(environment_field, [&](protobuf_writer& out) {
    add_text(out, 1, x.os);
    add_time(out, 3, start);
    add_text(out, 6, x.program);
    add_text(out, 12, x.host);
    add_text(out, 13, x.user);
    out.add_varint(16, x.cpus);
    out.add_varint(17, x.cpus);
    out.add_message(
      21, [&](protobuf_writer& memory) { memory.add_varint(1, x.memory); });
  });
}

std::string wandb_records::config(std::span<const wandb_item> items) {
  return record(config_field,
                [&](protobuf_writer& out) { add_items(out, 1, items); });
}

std::string wandb_records::history(std::int64_t step,
                                   std::span<const wandb_item> items) {
  return record(history_field, [&](protobuf_writer& out) {
    add_items(out, history_item, items);
    out.add_message(history_step,
                    [&](protobuf_writer& x) { x.add_int(1, step); });
  });
}

std::string wandb_records::summary(std::span<const wandb_item> items) {
  return record(summary_field,
                [&](protobuf_writer& out) { add_items(out, 1, items); });
}

std::string wandb_records::stats(clock::time_point time,
                                 std::span<const wandb_item> items) {
  return record(stats_field, [&](protobuf_writer& out) {
    add_time(out, 2, time);
    add_items(out, 3, items);
  });
}

std::string wandb_records::output(clock::time_point time,
                                  std::string_view line) {
  return record(output_raw_field, [&](protobuf_writer& out) {
    out.add_varint(1, stdout_type);
    add_time(out, 2, time);
    add_text(out, 3, line);
  });
}

std::string wandb_records::file(std::string_view path, bool is_media) {
  return record(files_field, [&](protobuf_writer& out) {
    out.add_message(1, [&](protobuf_writer& file) {
      add_text(file, 1, path);
      file.add_varint(3, is_media ? media_type : wandb_file_type);
    });
  });
}

std::string wandb_records::exit(int code, std::chrono::seconds runtime) {
  return record(exit_field, [&](protobuf_writer& out) {
    out.add_int(1, code);
    if (runtime.count() > 0)
      out.add_int(2, runtime.count());
  });
}

} // namespace troupe
