#include "troupe/callbacks/tensorboard/sink_progress.hpp"

#include "troupe/runtime/storage/checksum.hpp"
#include "troupe/runtime/storage/json_reader.hpp"
#include "troupe/runtime/storage/json_writer.hpp"

namespace troupe::tensorboard {

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
                                 + "' is no name of a file"};
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

} // namespace troupe::tensorboard
