# SPDX-License-Identifier: Apache-2.0
"""Japanese text for the tests of tokenizers: sentences, and lines that are put together at random from words, kana,
kanji, numbers, Latin letters, half and full width, emoji and spaces.
"""

import random

SENTENCES = [
    "すもももももももものうち",
    "東京都に住んでいる友達から、昨日電話がありました。",
    "私は毎朝七時に起きて、駅まで自転車で行きます。",
    "「これはいくらですか」と店員に聞いた。",
    "２０２６年１１月２６日（木）の会議は中止です。",
    "ＡＩとは何か？ Deep Learning入門 第3版",
    "ｶﾀｶﾅとﾋﾗｶﾞﾅ、ﾊﾟｿｺﾝをｲﾝｽﾄｰﾙする。",
    "外国人参政権について議論する。",
    "きょうはいい天気ですねえええええええ！！！",
    "本日ハ晴天ナリ。マイクのテスト中、マイクのテスト中。",
    "価格は1,234.56円（税込）、送料は￥500です。",
    "メールはinfo@example.comまで。URLはhttps://example.com/a?b=c#d",
    "うれしい😀とても嬉しい😂👩‍🚀🇯🇵🏳️‍🌈",
    "人々は佐々木さんの家へ行った〜。",
    "㍿ヤマダ電気㈱ ㌔㍍ ①②③ Ⅷ ½ ㎏",
    "令和元年㋿平成㍻昭和㍼",
    "改行\nを\r\n含む\tテキスト　全角空白",
    "ヴァイオリンとヴィオラを弾くティーンエイジャー",
    "コンピューターアーキテクチャーエンジニアリング",
    "彼は、「行くよ。」と言ったが、来なかった……。",
    "𠮷野家で𩸽を食べる髙橋さん、﨑さん",
    "は\u3099か\u3099き\u3099 がぎぐ ﾊﾞ ぱ",
    "なつかしい「昭和」の町並みを、ゆっくり歩いて見て回った",
    "The quick brown fox は、のろまな犬を jumps over した",
    "ｗｗｗ 草 (^_^) orz m(_ _)m ♪～(´ε｀ )",
    "",
    " ",
    "　",
    "  先頭と末尾の空白  ",
    "trail　",
]
WORDS = [
    "日本",
    "東京",
    "大阪",
    "京都大学",
    "新幹線",
    "会社員",
    "先生",
    "学校",
    "図書館",
    "情報処理",
    "機械学習",
    "自然言語",
    "国際連合",
    "消費税",
    "猫",
    "犬",
    "魚",
    "山",
    "川",
    "空",
    "は",
    "が",
    "を",
    "に",
    "で",
    "と",
    "から",
    "まで",
    "より",
    "です",
    "ます",
    "でした",
    "ません",
    "だろう",
    "ている",
    "てしまった",
    "食べる",
    "食べられなかった",
    "行く",
    "行こう",
    "見た",
    "読んで",
    "書けば",
    "美しい",
    "高かった",
    "静かな",
    "とても",
    "もっと",
    "ゆっくり",
    "コンピュータ",
    "インターネット",
    "ソフトウェア",
    "プログラム",
    "データ",
    "ﾃﾞｰﾀ",
    "ｱｲｽ",
    "ＮＨＫ",
    "Ｗｅｂ",
    "hello",
    "World",
    "iPhone15",
    "GPU",
    "3.14",
    "１００",
    "一億二千万",
    "第二次",
    "々",
    "ゝ",
    "ー",
    "〆切",
    "、",
    "。",
    "「",
    "」",
    "（",
    "）",
    "!?",
    "！？",
    "…",
    "・",
    "～",
    "￥",
    "%",
    "😀",
    "👩‍🚀",
    "한국어",
    "中国",
    "Привет",
    "é",
    "ß",
    "か\u3099",
    "\u200b",
    "\ufeff",
    "\u00ad",
    "\x7f",
    "[MASK]",
    "[SEP]",
    "##",
    "##す",
]
SPACES = [" ", "  ", "　", "\n", "\r\n", "\t", "\u00a0", "\u2028", "\u0085", "\x1c", "\u3000\u3000"]
RANGES = [
    (0x3041, 0x3097),
    (0x30A1, 0x30FF),
    (0x4E00, 0x9FFF),
    (0xFF01, 0xFF9F),
    (0x21, 0x7F),
    (0x3000, 0x3040),
    (0xA1, 0x250),
    (0x2010, 0x2030),
    (0x2460, 0x2500),
    (0x3200, 0x33FF),
    (0x1F300, 0x1F640),
    (0x20000, 0x20100),
]


def random_lines(seed, count):
    """Lines of up to twelve words, runs of one kind of characters, and single characters of any kind."""
    rng = random.Random(seed)

    def part():
        kind = rng.random()
        if kind < 0.7:
            return rng.choice(WORDS)
        if kind < 0.8:
            first, last = rng.choice(RANGES[:5])
            return "".join(chr(rng.randrange(first, last)) for _ in range(rng.randrange(1, 40 if kind < 0.72 else 6)))
        if kind < 0.9:
            return chr(rng.randrange(*rng.choice(RANGES)))
        if kind < 0.96:
            return rng.choice(SPACES)
        sentence = rng.choice(SENTENCES)
        begin = rng.randrange(len(sentence) + 1)
        return sentence[begin : begin + rng.randrange(12)]

    return ["".join(part() for _ in range(rng.randrange(1, 13))) for _ in range(count)]
