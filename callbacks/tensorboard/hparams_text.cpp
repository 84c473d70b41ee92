#include "troupe/callbacks/tensorboard/hparams_text.hpp"

#include <variant>

#include "troupe/callbacks/encoding/protobuf_writer.hpp"
#include "troupe/callbacks/encoding/utf8_text.hpp"
#include "troupe/callbacks/tensorboard/event_text.hpp"

namespace troupe::tensorboard {

namespace {

// Types of params, as the page's messages number them.
enum : std::uint32_t { data_type_string = 1, data_type_bool, data_type_float };

// Ways a session ends.
enum : std::uint32_t { status_success = 1, status_failure };

double unix_seconds(time_point x) {
  return std::chrono::duration<double>(x.time_since_epoch()).count();
}

const std::string* text_of(const metric_value& x) {
  return std::get_if<std::string>(&x.variant());
}

const bool* flag_of(const metric_value& x) {
  return std::get_if<bool>(&x.variant());
}

void add_value(protobuf_writer& out, const metric_value& x) {
  if (const auto* text = text_of(x))
    out.add_bytes(3, utf8_text(*text));
  else if (const auto* flag = flag_of(x))
    out.add_varint(4, *flag ? 1 : 0);
  else
    out.add_double(2, x.number());
}

void add_param_info(protobuf_writer& out, const std::string& name,
                    const metric_value& x) {
  out.add_bytes(1, utf8_text(name));
  out.add_varint(4, text_of(x)   ? data_type_string
                    : flag_of(x) ? data_type_bool
                                 : data_type_float);
  if (text_of(x) || flag_of(x)) // The page wants to know what to choose from.
    out.add_message(5, [&](protobuf_writer& list) {
      list.add_message(1, [&](protobuf_writer& value) { add_value(value, x); });
    });
}

} // namespace

void append_experiment(std::string& out, time_point time,
                       const std::string& name, const metrics& params,
                       const std::vector<std::string>& metric_names) {
  std::string content;
  protobuf_writer{content}.add_message(2, [&](protobuf_writer& experiment) {
    for (const auto& [param, value] : params)
      experiment.add_message(
        4, [&](protobuf_writer& info) { add_param_info(info, param, value); });
    for (const auto& metric : metric_names)
      experiment.add_message(5, [&](protobuf_writer& info) {
        info.add_message(
          1, [&](protobuf_writer& x) { x.add_bytes(2, utf8_text(metric)); });
      });
    experiment.add_bytes(6, utf8_text(name));
  });
  append_hparams(out, time, "_hparams_/experiment", content);
}

void append_session_start(std::string& out, time_point time,
                          const std::string& run_name, const metrics& params) {
  std::string content;
  protobuf_writer{content}.add_message(3, [&](protobuf_writer& start) {
    for (const auto& [param, value] : params)
      start.add_message(1, [&](protobuf_writer& entry) {
        entry.add_bytes(1, utf8_text(param));
        entry.add_message(2, [&](protobuf_writer& x) { add_value(x, value); });
      });
    start.add_bytes(4, utf8_text(run_name));
    start.add_double(5, unix_seconds(time));
  });
  append_hparams(out, time, "_hparams_/session_start_info", content);
}

void append_session_end(std::string& out, time_point time,
                        run_status_kind status) {
  std::string content;
  protobuf_writer{content}.add_message(4, [&](protobuf_writer& end) {
    end.add_varint(1, status == run_status_kind::finished ? status_success
                                                          : status_failure);
    end.add_double(2, unix_seconds(time));
  });
  append_hparams(out, time, "_hparams_/session_end_info", content);
}

} // namespace troupe::tensorboard
