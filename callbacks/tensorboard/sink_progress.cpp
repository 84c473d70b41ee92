#include "troupe/callbacks/tensorboard/sink_progress.hpp"

#include <variant>

#include "troupe/callbacks/tensorboard/event_text.hpp"
#include "troupe/callbacks/tracking/run_files.hpp"
#include "troupe/callbacks/tracking/sink.hpp"
#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/durable_file.hpp"
#include "troupe/runtime/storage/json.hpp"
#include "troupe/runtime/text.hpp"

namespace troupe::internal::tensorboard {

namespace {

constexpr std::size_t max_image_bytes = 1 << 28;

class visitor {
public:
  visitor(std::string& out, const tracker_record& record,
          const tensorboard_options& options, sink_progress& progress)
    : out_(out), options_(options),
      progress_(progress), head_{record.time, step_of(record)} {}

  sink_result operator()(const journaled_batch& x) {
    append(values_of(x, options_.ranks));
    if (!x.checkpoint.empty())
      progress_.steps.mark(x.index + 1);
    return {};
  }

  sink_result operator()(const logged_metrics& x) {
    append(x.values);
    return logged();
  }

  sink_result operator()(const logged_text& x) {
    append_text(out_, head_, x.name, x.text);
    return logged();
  }

  sink_result operator()(const logged_histogram& x) {
    append_histogram(out_, head_, x);
    return logged();
  }

  sink_result operator()(const logged_image& x) {
    auto png = read_file(x.file, max_image_bytes);
    if (!png)
      return tl::unexpected{unreadable_file(x.file, png.error())};
    append_image(out_, head_, x, *png);
    return logged();
  }

  // Params, files and the end of the run are not values of a folder.
  template <class Other>
  sink_result operator()(const Other&) {
    return {};
  }

private:
  void append(const metrics& values) {
    for (const auto& [name, value] : values) {
      if (const auto* text = std::get_if<std::string>(&value.variant()))
        append_changed(name, *text);
      else if (is_sent(options_.non_finite, value))
        append_scalar(out_, head_, name, value.number());
    }
  }

  void append_changed(const std::string& name, const std::string& text) {
    auto sum = checksum(text);
    auto [known, is_new] = progress_.texts.emplace(utf8_text(name), sum);
    if (!is_new && known->second == sum)
      return;
    known->second = sum;
    append_text(out_, head_, name, text);
  }

  sink_result logged() {
    progress_.steps.logged(head_.step);
    return {};
  }

  std::string& out_;
  const tensorboard_options& options_;
  sink_progress& progress_;
  event_head head_;
};

} // namespace

sink_result append_record(std::string& out, const tracker_record& record,
                          const tensorboard_options& options,
                          sink_progress& progress) {
  return std::visit(visitor{out, record, options, progress}, record.content);
}

std::int64_t step_of(const tracker_record& record) {
  return std::visit(
    [](const auto& x) -> std::int64_t {
      if constexpr (requires { x.index; })
        return static_cast<std::int64_t>(x.index);
      else if constexpr (requires { x.step; })
        return x.step;
      else
        return -1;
    },
    record.content);
}

std::string to_json(const sink_progress& x) {
  auto texts = json::document::object();
  for (const auto& [tag, checksum] : x.texts)
    texts[tag] = checksum_text(checksum);
  std::string params;
  json::append(params, x.params);
  return json::document{{"number", x.place.number},
                        {"seconds", x.place.seconds},
                        {"file", x.place.file},
                        {"size", x.place.size},
                        {"has_attempt", x.has_attempt},
                        {"params", json::document::parse(params)},
                        {"texts", texts},
                        {"highest_step", x.steps.highest()},
                        {"marks", x.steps.marks()}}
    .dump();
}

expected<sink_progress> progress_from_json(const std::string& text) {
  return json::read<sink_progress>(
    text, "tensorboard: the saved state", [](const json::document& x) {
      sink_progress result;
      result.place = {json::to_unsigned(json::field(x, "number")),
                      json::field(x, "seconds").get<std::int64_t>(),
                      json::field(x, "file").get<std::string>(),
                      json::to_unsigned(json::field(x, "size"))};
      if (result.place.file.find('/') != std::string::npos
          || result.place.file == "..")
        throw json::format_error{"'" + result.place.file
                                 + "' is not the name of a file"};
      result.has_attempt = json::field(x, "has_attempt").get<bool>();
      result.params = json::to_metrics(json::field(x, "params"));
      for (const auto& [tag, checksum] : json::field(x, "texts").items())
        result.texts[tag] = json::to_checksum(checksum);
      result.steps =
        step_marks{json::field(x, "highest_step").get<std::int64_t>(),
                   json::field(x, "marks").get<step_marks::mark_list>()};
      return result;
    });
}

} // namespace troupe::internal::tensorboard
