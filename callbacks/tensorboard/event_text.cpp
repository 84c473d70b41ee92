#include "troupe/callbacks/tensorboard/event_text.hpp"

#include <bit>
#include <cmath>
#include <variant>

#include "troupe/callbacks/encoding/binary.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::tensorboard {

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

constexpr std::uint32_t dt_string = 7;
constexpr std::uint32_t session_start = 1;
constexpr std::size_t head_size = 12; // bytes before a record's data

// Reserves the head, calls *body* with the event's writer, fills in the head
// and appends the checksum.
template <class Body>
void append_event(std::string& out, event_head head, Body body) {
  const auto begin = out.size();
  out.append(head_size, '\0');
  protobuf_writer event{out};
  event.add_double(
    event::wall_time,
    std::chrono::duration<double>(head.time.time_since_epoch()).count());
  if (head.step != 0)
    event.add_int(event::step, head.step);
  body(event);
  const auto data = std::string_view{out}.substr(begin + head_size);
  const auto checksum = masked_crc(crc32c(data));
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
    event.add_message(event::summary, [&](protobuf_writer& summary) {
      summary.add_message(1, [&](protobuf_writer& x) {
        x.add_bytes(value::tag, utf8_text(tag));
        body(x);
      });
    });
  });
}

void add_plugin(protobuf_writer& x, std::string_view name,
                std::string_view content) {
  x.add_message(1, [&](protobuf_writer& plugin) {
    plugin.add_bytes(1, name);
    if (!content.empty())
      plugin.add_bytes(2, content);
  });
}

// One NaN for all: which one a computation yields depends on the processor.
float as_float(double x) {
  return std::isnan(x) ? std::bit_cast<float>(0x7fc00000u)
                       : static_cast<float>(x);
}

// Types of params in the page's messages.
enum : std::uint32_t { data_type_string = 1, data_type_bool, data_type_float };

// Outcomes of a session.
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
  if (text_of(x) || flag_of(x)) // The page offers these values for filters.
    out.add_message(5, [&](protobuf_writer& list) {
      list.add_message(1, [&](protobuf_writer& value) { add_value(value, x); });
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
    event.add_message(event::session_log, [](protobuf_writer& x) {
      x.add_varint(1, session_start);
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
    x.add_message(value::tensor, [&](protobuf_writer& tensor) {
      tensor.add_varint(1, dt_string);
      tensor.add_message(2, [](protobuf_writer& shape) {
        shape.add_message(2, [](protobuf_writer& side) { side.add_int(1, 1); });
      });
      tensor.add_bytes(8, utf8_text(text));
    });
    x.add_message(value::metadata, [](protobuf_writer& metadata) {
      add_plugin(metadata, "text", {});
      metadata.add_varint(4, 2); // tensors
    });
  });
}

void append_histogram(std::string& out, event_head head,
                      const logged_histogram& x) {
  double count = 0;
  for (auto n : x.counts)
    count += n;
  append_value(out, head, x.name, [&](protobuf_writer& value) {
    value.add_message(value::histo, [&](protobuf_writer& histogram) {
      histogram.add_double(histo::min, x.min);
      histogram.add_double(histo::max, x.max);
      histogram.add_double(histo::num, count);
      histogram.add_double(histo::sum, x.sum);
      histogram.add_double(histo::sum_squares, x.sum_squares);
      histogram.add_packed(histo::bucket_limit, x.limits);
      histogram.add_packed(histo::bucket, x.counts);
    });
  });
}

void append_image(std::string& out, event_head head, const logged_image& x,
                  std::string_view png) {
  append_value(out, head, x.name, [&](protobuf_writer& value) {
    value.add_message(value::image, [&](protobuf_writer& image) {
      image.add_int(image::height, x.height);
      image.add_int(image::width, x.width);
      image.add_int(image::colorspace, x.channels);
      image.add_bytes(image::encoded, png);
    });
  });
}

void append_hparams(std::string& out, time_point time, std::string_view tag,
                    std::string_view content) {
  append_value(out, {time, 0}, tag, [&](protobuf_writer& x) {
    x.add_message(value::metadata, [&](protobuf_writer& metadata) {
      add_plugin(metadata, "hparams", content);
    });
  });
}

// -- the page "HParams"

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
