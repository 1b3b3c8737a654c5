// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/languages.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace pm::server {
namespace {

struct Language {
  std::string_view code, name;
};

/// By ISO 639-1 where it has a code, sorted; then other names of some. Replies have the first name of a code.
constexpr std::array languages = std::to_array<Language>({
    {"af", "afrikaans"},      {"am", "amharic"},     {"ar", "arabic"},
    {"as", "assamese"},       {"az", "azerbaijani"}, {"ba", "bashkir"},
    {"be", "belarusian"},     {"bg", "bulgarian"},   {"bn", "bengali"},
    {"bo", "tibetan"},        {"br", "breton"},      {"bs", "bosnian"},
    {"ca", "catalan"},        {"cs", "czech"},       {"cy", "welsh"},
    {"da", "danish"},         {"de", "german"},      {"el", "greek"},
    {"en", "english"},        {"es", "spanish"},     {"et", "estonian"},
    {"eu", "basque"},         {"fa", "persian"},     {"fi", "finnish"},
    {"fo", "faroese"},        {"fr", "french"},      {"gl", "galician"},
    {"gu", "gujarati"},       {"ha", "hausa"},       {"haw", "hawaiian"},
    {"he", "hebrew"},         {"hi", "hindi"},       {"hr", "croatian"},
    {"ht", "haitian creole"}, {"hu", "hungarian"},   {"hy", "armenian"},
    {"id", "indonesian"},     {"is", "icelandic"},   {"it", "italian"},
    {"ja", "japanese"},       {"jw", "javanese"},    {"ka", "georgian"},
    {"kk", "kazakh"},         {"km", "khmer"},       {"kn", "kannada"},
    {"ko", "korean"},         {"la", "latin"},       {"lb", "luxembourgish"},
    {"ln", "lingala"},        {"lo", "lao"},         {"lt", "lithuanian"},
    {"lv", "latvian"},        {"mg", "malagasy"},    {"mi", "maori"},
    {"mk", "macedonian"},     {"ml", "malayalam"},   {"mn", "mongolian"},
    {"mr", "marathi"},        {"ms", "malay"},       {"mt", "maltese"},
    {"my", "myanmar"},        {"ne", "nepali"},      {"nl", "dutch"},
    {"nn", "nynorsk"},        {"no", "norwegian"},   {"oc", "occitan"},
    {"pa", "punjabi"},        {"pl", "polish"},      {"ps", "pashto"},
    {"pt", "portuguese"},     {"ro", "romanian"},    {"ru", "russian"},
    {"sa", "sanskrit"},       {"sd", "sindhi"},      {"si", "sinhala"},
    {"sk", "slovak"},         {"sl", "slovenian"},   {"sn", "shona"},
    {"so", "somali"},         {"sq", "albanian"},    {"sr", "serbian"},
    {"su", "sundanese"},      {"sv", "swedish"},     {"sw", "swahili"},
    {"ta", "tamil"},          {"te", "telugu"},      {"tg", "tajik"},
    {"th", "thai"},           {"tk", "turkmen"},     {"tl", "tagalog"},
    {"tr", "turkish"},        {"tt", "tatar"},       {"uk", "ukrainian"},
    {"ur", "urdu"},           {"uz", "uzbek"},       {"vi", "vietnamese"},
    {"yi", "yiddish"},        {"yo", "yoruba"},      {"yue", "cantonese"},
    {"zh", "chinese"},        {"my", "burmese"},     {"ca", "valencian"},
    {"nl", "flemish"},        {"ht", "haitian"},     {"lb", "letzeburgesch"},
    {"ps", "pushto"},         {"pa", "panjabi"},     {"ro", "moldavian"},
    {"ro", "moldovan"},       {"si", "sinhalese"},   {"es", "castilian"},
    {"zh", "mandarin"},
});

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c); });
  return text;
}

}  // namespace

std::optional<std::string> language_code(const std::string& name) {
  const std::string wanted = lower(name);
  const auto found = std::find_if(languages.begin(), languages.end(), [&](const Language& language) {
    return language.code == wanted || language.name == wanted;
  });
  return found == languages.end() ? std::nullopt : std::optional(std::string(found->code));
}

std::string language_name(const std::string& code) {
  const auto found =
      std::find_if(languages.begin(), languages.end(), [&](const Language& language) { return language.code == code; });
  return found == languages.end() ? code : std::string(found->name);
}

}  // namespace pm::server
