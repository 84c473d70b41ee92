#include "troupe/callbacks/tensorboard/event_text.hpp"

#include <bit>
#include <cmath>
#include <variant>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/runtime/text.hpp"
#include "troupe/runtime/unix_time.hpp"

namespace troupe::internal::tensorboard {

namespace {

// Field numbers of TensorBoard's messages.
namespace event {
enum : std::uint32_t {
  wall_time = 1,
  step,
  file_version,
  summary = 5,
  session_log = 7
};
} // namespace event

namespace value {
enum : std::uint32_t {
  tag = 1,
  simple_value,
  image = 4,
  histo,
  tensor = 8,
  metadata
};
} // namespace value

namespace image {
enum : std::uint32_t { height = 1, width, colorspace, encoded };
} // namespace image

namespace histo {
enum : std::uint32_t {
  min = 1,
  max,
  num,
  sum,
  sum_squares,
  bucket_limit,
  bucket
};
} // namespace histo

// Of SummaryMetadata and its PluginData.
namespace metadata {
enum : std::uint32_t { plugin_data = 1, data_class = 4 };
enum : std::uint32_t { plugin_name = 1, content };
constexpr std::uint32_t class_tensor = 2;
} // namespace metadata

// Of TensorProto, TensorShapeProto and its Dim.
namespace tensor {
enum : std::uint32_t { dtype = 1, shape, string_value = 8 };
enum : std::uint32_t { shape_dim = 2, dim_size = 1 };
constexpr std::uint32_t type_string = 7;
} // namespace tensor

// Of the messages of the page "HParams": HParamsPluginData, Experiment,
// HParamInfo, MetricInfo, SessionStartInfo, SessionEndInfo.
namespace hparams {
enum : std::uint32_t { experiment = 2, session_start, session_end };
enum : std::uint32_t { param_infos = 4, metric_infos, experiment_name };
enum : std::uint32_t { param_name = 1, param_type = 4, param_values };
enum : std::uint32_t { metric_name = 1, metric_name_tag };
enum : std::uint32_t { start_params = 1, start_group = 4, start_seconds };
enum : std::uint32_t { end_status = 1, end_seconds };
enum : std::uint32_t { type_string = 1, type_bool, type_number };
enum : std::uint32_t { status_success = 1, status_failure };
} // namespace hparams

// Of google.protobuf: ListValue, Value, and the entries of a map.
namespace protobuf {
enum : std::uint32_t { list_values = 1 };
enum : std::uint32_t { value_number = 2, value_text, value_flag };
enum : std::uint32_t { entry_key = 1, entry_value };
} // namespace protobuf

constexpr std::uint32_t summary_value = 1;
constexpr std::uint32_t log_status = 1; // of SessionLog
constexpr std::uint32_t session_start = 1;
constexpr std::size_t head_size = 12; // bytes before a record's data

// Reserves the head, calls *body* with the event's writer, fills in the head
// and appends the checksum.
template <class Body>
void append_event(std::string& out, event_head head, Body body) {
  auto begin = out.size();
  out.append(head_size, '\0');
  protobuf_writer event{out};
  event.add_double(event::wall_time, unix_seconds(head.time));
  if (head.step != 0)
    event.add_int64(event::step, head.step);
  body(event);
  auto data = std::string_view{out}.substr(begin + head_size);
  auto checksum = masked_crc(crc32c(data));
  std::string frame;
  append_little_endian(frame, std::uint64_t{data.size()});
  append_little_endian(frame, masked_crc(crc32c(frame)));
  out.replace(begin, head_size, frame);
  append_little_endian(out, checksum);
}

// An event with one value, which *body* completes.
template <class Body>
void append_value(std::string& out, event_head head, std::string_view tag,
                  Body body) {
  append_event(out, head, [&](protobuf_writer& event) {
    add_message(event, event::summary, [&](protobuf_writer& summary) {
      add_message(summary, summary_value, [&](protobuf_writer& x) {
        x.add_bytes(value::tag, utf8_text(tag));
        body(x);
      });
    });
  });
}

void add_plugin(protobuf_writer& x, std::string_view name,
                std::string_view content) {
  add_message(x, metadata::plugin_data, [&](protobuf_writer& plugin) {
    plugin.add_bytes(metadata::plugin_name, name);
    if (!content.empty())
      plugin.add_bytes(metadata::content, content);
  });
}

// One NaN for all: which one a computation yields depends on the processor.
float as_float(double x) {
  return std::isnan(x) ? std::bit_cast<float>(0x7fc00000u)
                       : static_cast<float>(x);
}

const std::string* text_of(const metric_value& x) {
  return std::get_if<std::string>(&x.variant());
}

const bool* flag_of(const metric_value& x) {
  return std::get_if<bool>(&x.variant());
}

void add_value(protobuf_writer& out, const metric_value& x) {
  if (const auto* text = text_of(x))
    out.add_bytes(protobuf::value_text, utf8_text(*text));
  else if (const auto* flag = flag_of(x))
    out.add_bool(protobuf::value_flag, *flag);
  else
    out.add_double(protobuf::value_number, x.number());
}

void add_param_info(protobuf_writer& out, const std::string& name,
                    const metric_value& x) {
  out.add_bytes(hparams::param_name, utf8_text(name));
  out.add_uint64(hparams::param_type, text_of(x)   ? hparams::type_string
                                      : flag_of(x) ? hparams::type_bool
                                                   : hparams::type_number);
  if (text_of(x) || flag_of(x)) // The page offers these values for filters.
    add_message(out, hparams::param_values, [&](protobuf_writer& list) {
      add_message(list, protobuf::list_values,
                  [&](protobuf_writer& value) { add_value(value, x); });
    });
}

/// A record for the page "HParams"; *content* is the plugin's message.
void append_hparams(std::string& out, time_point time, std::string_view tag,
                    std::string_view content) {
  append_value(out, {time, 0}, tag, [&](protobuf_writer& x) {
    add_message(x, value::metadata, [&](protobuf_writer& metadata) {
      add_plugin(metadata, "hparams", content);
    });
  });
}

} // namespace

void append_version(std::string& out, time_point time) {
  append_event(out, {time, 0}, [](protobuf_writer& event) {
    event.add_bytes(event::file_version, "brain.Event:2");
  });
}

void append_restart(std::string& out, event_head head) {
  append_event(out, head, [](protobuf_writer& event) {
    add_message(event, event::session_log, [](protobuf_writer& x) {
      x.add_uint64(log_status, session_start);
    });
  });
}

void append_scalar(std::string& out, event_head head, std::string_view tag,
                   double value) {
  append_value(out, head, tag, [&](protobuf_writer& x) {
    x.add_float(value::simple_value, as_float(value));
  });
}

void append_text(std::string& out, event_head head, std::string_view tag,
                 std::string_view text) {
  append_value(out, head, tag, [&](protobuf_writer& x) {
    add_message(x, value::tensor, [&](protobuf_writer& tensor) {
      tensor.add_uint64(tensor::dtype, tensor::type_string);
      add_message(tensor, tensor::shape, [](protobuf_writer& shape) {
        add_message(shape, tensor::shape_dim, [](protobuf_writer& side) {
          side.add_int64(tensor::dim_size, 1);
        });
      });
      tensor.add_bytes(tensor::string_value, utf8_text(text));
    });
    add_message(x, value::metadata, [](protobuf_writer& metadata) {
      add_plugin(metadata, "text", {});
      metadata.add_uint64(metadata::data_class, metadata::class_tensor);
    });
  });
}

void append_histogram(std::string& out, event_head head,
                      const logged_histogram& x) {
  double count = 0;
  for (auto n : x.counts)
    count += n;
  append_value(out, head, x.name, [&](protobuf_writer& value) {
    add_message(value, value::histo, [&](protobuf_writer& histogram) {
      histogram.add_double(histo::min, x.min);
      histogram.add_double(histo::max, x.max);
      histogram.add_double(histo::num, count);
      histogram.add_double(histo::sum, x.sum);
      histogram.add_double(histo::sum_squares, x.sum_squares);
      histogram.add_packed_double(histo::bucket_limit, x.limits.begin(),
                                  x.limits.end());
      histogram.add_packed_double(histo::bucket, x.counts.begin(),
                                  x.counts.end());
    });
  });
}

void append_image(std::string& out, event_head head, const logged_image& x,
                  std::string_view png) {
  append_value(out, head, x.name, [&](protobuf_writer& value) {
    add_message(value, value::image, [&](protobuf_writer& image) {
      image.add_int64(image::height, x.height);
      image.add_int64(image::width, x.width);
      image.add_int64(image::colorspace, x.channels);
      image.add_bytes(image::encoded, png);
    });
  });
}

// -- the page "HParams"

void append_experiment(std::string& out, time_point time,
                       const std::string& name, const metrics& params,
                       const std::vector<std::string>& metric_names) {
  std::string content;
  protobuf_writer message{content};
  add_message(message, hparams::experiment, [&](protobuf_writer& experiment) {
    for (const auto& [param, value] : params)
      add_message(experiment, hparams::param_infos, [&](protobuf_writer& info) {
        add_param_info(info, param, value);
      });
    for (const auto& metric : metric_names)
      add_message(
        experiment, hparams::metric_infos, [&](protobuf_writer& info) {
          add_message(info, hparams::metric_name, [&](protobuf_writer& x) {
            x.add_bytes(hparams::metric_name_tag, utf8_text(metric));
          });
        });
    experiment.add_bytes(hparams::experiment_name, utf8_text(name));
  });
  append_hparams(out, time, "_hparams_/experiment", content);
}

void append_session_start(std::string& out, time_point time,
                          const std::string& run_name, const metrics& params) {
  std::string content;
  protobuf_writer message{content};
  add_message(message, hparams::session_start, [&](protobuf_writer& start) {
    for (const auto& [param, value] : params)
      add_message(start, hparams::start_params, [&](protobuf_writer& entry) {
        entry.add_bytes(protobuf::entry_key, utf8_text(param));
        add_message(entry, protobuf::entry_value,
                    [&](protobuf_writer& x) { add_value(x, value); });
      });
    start.add_bytes(hparams::start_group, utf8_text(run_name));
    start.add_double(hparams::start_seconds, unix_seconds(time));
  });
  append_hparams(out, time, "_hparams_/session_start_info", content);
}

void append_session_end(std::string& out, time_point time,
                        run_status_kind status) {
  std::string content;
  protobuf_writer message{content};
  add_message(message, hparams::session_end, [&](protobuf_writer& end) {
    end.add_uint64(hparams::end_status, status == run_status_kind::finished
                                          ? hparams::status_success
                                          : hparams::status_failure);
    end.add_double(hparams::end_seconds, unix_seconds(time));
  });
  append_hparams(out, time, "_hparams_/session_end_info", content);
}

} // namespace troupe::internal::tensorboard
