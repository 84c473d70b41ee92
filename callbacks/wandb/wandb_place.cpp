#include "troupe/callbacks/wandb/wandb_place.hpp"

#include "troupe/runtime/storage/json_reader.hpp"

namespace troupe {

std::string to_json(const wandb_place& x) {
  return json::document{
    {"fragment", x.fragment},   {"size", x.size},
    {"closed", x.closed},       {"ended", x.ended},
    {"step", x.steps.last},     {"report", x.steps.report},
    {"logged", x.steps.logged}, {"repeated", x.steps.repeated},
    {"console", x.console}}
    .dump();
}

expected<wandb_place> wandb_place_from_json(const std::string& text) {
  if (text.empty())
    return wandb_place{};
  return json::read<wandb_place>(text, "the state of tracker wandb",
                                 [](const json::document& in) {
                                   wandb_place x;
                                   in.at("fragment").get_to(x.fragment);
                                   in.at("size").get_to(x.size);
                                   in.at("closed").get_to(x.closed);
                                   in.at("ended").get_to(x.ended);
                                   in.at("step").get_to(x.steps.last);
                                   in.at("report").get_to(x.steps.report);
                                   in.at("logged").get_to(x.steps.logged);
                                   in.at("repeated").get_to(x.steps.repeated);
                                   in.at("console").get_to(x.console);
                                   return x;
                                 });
}

} // namespace troupe
