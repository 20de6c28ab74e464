"""Pipeline documents with one mistake each, and what is said about it."""

from __future__ import annotations

INPUT = "input: {items: [{a: 1}]}\n"


MAP = 'map: {prompt: "{{a}}"}\n'


REDUCE = "reduce: {type: list}\n"


NAME = "name: n\n"


# Each case: the file, and what is said about it.
CASES: dict[str, tuple[str, list[str]]] = {
    "no name": (INPUT + MAP + REDUCE, ['1:1 the pipeline: "name" is missing']),
    "an empty name": ('name: ""\n' + INPUT + MAP + REDUCE, ["1:7 name must not be empty"]),
    "a blank name": ('name: "  "\n' + INPUT + MAP + REDUCE, ["1:7 name must not be empty"]),
    "a name that is a number": (
        "name: 5\n" + INPUT + MAP + REDUCE,
        ["1:7 name must be text; put quotes around 5"],
    ),
    "nothing to do": (
        NAME,
        ["1:1 there is nothing to do: give input, map and reduce; or job; or nodes"],
    ),
    "a job with a map": (
        NAME + MAP + "job: {prompt: x}\n",
        ["2:1 map and job exclude each other; choose one"],
    ),
    "a job without a prompt": (
        NAME + "job: {}\n",
        ["2:1 job has no prompt: give prompt or promptFile"],
    ),
    "a job with two prompts": (
        NAME + "job: {prompt: x, promptFile: y.md}\n",
        ["2:18 job has prompt and promptFile; keep one"],
    ),
    "no map": (
        NAME + INPUT + REDUCE,
        ['1:1 "map" is missing: a pipeline has input, map and reduce'],
    ),
    "a map without a prompt": (
        NAME + INPUT + "map: {}\n" + REDUCE,
        ["3:1 map has no prompt: give prompt or promptFile"],
    ),
    "a map with an empty prompt": (
        NAME + INPUT + 'map: {prompt: ""}\n' + REDUCE,
        [
            "3:15 map.prompt is empty",
            "warning 3:15 the prompt holds no {{placeholder}}: every item asks the same",
        ],
    ),
    "a map with two prompts": (
        NAME + INPUT + 'map: {prompt: "{{a}}", promptFile: b.md}\n' + REDUCE,
        ["3:24 map has prompt and promptFile; keep one"],
    ),
    "a skill that is no text": (
        NAME + INPUT + 'map: {prompt: "{{a}}", skill: [x]}\n' + REDUCE,
        ["3:31 map.skill must be text; it is a list"],
    ),
    "an output that is no list": (
        NAME + INPUT + 'map: {prompt: "{{a}}", output: x}\n' + REDUCE,
        ['3:32 map.output must be a list; it is "x"'],
    ),
    "an output field twice": (
        NAME + INPUT + 'map: {prompt: "{{a}}", output: [x, x]}\n' + REDUCE,
        ['3:36 map.output: "x" is here twice'],
    ),
    "a batch that is no number": (
        NAME + INPUT + 'map: {prompt: "{{ITEMS}}", batchSize: 2.5}\n' + REDUCE,
        ["3:39 map.batchSize must be a whole number, at least 1; it is 2.5"],
    ),
    "a batch of none": (
        NAME + INPUT + 'map: {prompt: "{{ITEMS}}", batchSize: 0}\n' + REDUCE,
        ["3:39 map.batchSize must be a whole number, at least 1; it is 0"],
    ),
    "a batch that its prompt does not show": (
        NAME + INPUT + 'map: {prompt: "{{a}}", batchSize: 2}\n' + REDUCE,
        ["warning 3:15 batchSize is more than 1, but the prompt does not hold {{ITEMS}}"],
    ),
    "a budget below nothing": (
        NAME + "settings: {budget: {maxCost: -1}}\n" + INPUT + MAP + REDUCE,
        ["2:30 settings.budget.maxCost must be a number, at least 0; it is -1"],
    ),
    "a budget without an end": (
        NAME + "settings: {budget: {maxCost: .inf}}\n" + INPUT + MAP + REDUCE,
        ['2:30 settings.budget.maxCost must be a number, at least 0; it is ".inf"'],
    ),
    "a budget of no calls": (
        NAME + "settings: {budget: {maxCalls: 0}}\n" + INPUT + MAP + REDUCE,
        ["2:31 settings.budget.maxCalls must be a whole number, at least 1; it is 0"],
    ),
    "no reduce": (
        NAME + INPUT + MAP,
        ['1:1 "reduce" is missing: a pipeline has input, map and reduce'],
    ),
    "an unknown reduce": (
        NAME + INPUT + MAP + "reduce: {type: jsno}\n",
        [
            ('4:16 reduce.type: "jsno" is not one of ai, csv, json, list, table, text; '
            'did you mean "json"?')
        ],
    ),
    "an AI reduce without a prompt": (
        NAME + INPUT + MAP + "reduce: {type: ai}\n",
        ["4:1 reduce has no prompt: give prompt or promptFile"],
    ),
    "a prompt for a reduce that asks nobody": (
        NAME + INPUT + MAP + "reduce: {type: json, prompt: x}\n",
        ["4:22 reduce.prompt means something only with type: ai; this is type: json"],
    ),
    "no input": (
        NAME + MAP + REDUCE,
        ['1:1 "input" is missing: a pipeline has input, map and reduce'],
    ),
    "an input without a source": (
        NAME + "input: {}\n" + MAP + REDUCE,
        ["2:1 input has no source: give items, from or generate"],
    ),
    "two sources": (
        NAME + "input: {items: [{a: 1}], from: {type: csv, path: b}}\n" + MAP + REDUCE,
        ["2:26 input has more than one source: items and from; keep one"],
    ),
    "an unsupported source": (
        NAME + "input: {from: {type: ods, path: b}}\n" + MAP + REDUCE,
        [
            (
                '2:22 input.from.type: "ods" is not one of csv, json, jsonl, xlsx, parquet, '
                "sqlite, glob, command, stdin"
            )
        ],
    ),
    "a source that is a word": (
        NAME + "input: {from: bugs.csv}\n" + MAP + REDUCE,
        [
            ('2:15 input.from must be a list or a mapping (key: value); it is "bugs.csv"; '
            "write {type: csv, path: bugs.csv}")
        ],
    ),
    "a CSV without a path": (
        NAME + "input: {from: {type: csv}}\n" + MAP + REDUCE,
        ['2:9 input.from: "path" is missing'],
    ),
    "the source one level too high": (
        NAME + "input: {type: csv, path: b.csv}\n" + MAP + REDUCE,
        [
            '2:9 input: unknown key "type"; put type and path under "from:"',
            '2:20 input: unknown key "path"; put type and path under "from:"',
        ],
    ),
    "items that are no list": (
        NAME + "input: {items: {a: 1}}\n" + MAP + REDUCE,
        ["2:16 input.items must be a list; it is a mapping"],
    ),
    "an item that is a word": (
        NAME + "input: {items: [x]}\n" + MAP + REDUCE,
        ['2:17 input.items[1] must be a mapping (key: value); it is "x"'],
    ),
    "parameters that are no list": (
        NAME + "input: {items: [{a: 1}], parameters: x}\n" + MAP + REDUCE,
        ['2:38 input.parameters must be a list or a mapping (key: value); it is "x"'],
    ),
    "a parameter without a name": (
        NAME + "input: {items: [{a: 1}], parameters: [{value: 1}]}\n" + MAP + REDUCE,
        ['2:39 input.parameters[1]: "name" is missing'],
    ),
    "a parameter without a value": (
        NAME + "parameters: [{name: p, value: }, {name: q}]\n" + INPUT + MAP + REDUCE,
        ['2:34 parameters[2]: "value" is missing'],
    ),
    "a parameter that is null": (
        NAME + "parameters: [{name: p, value: ~}]\n" + INPUT + MAP + REDUCE,
        ['2:14 the parameter "p" has no value'],
    ),
    "a parameter twice, and a reserved one": (
        NAME + "parameters: [{name: p, value: 1}, {name: p, value: 2}, {name: COUNT, value: 2}]\n"
        + INPUT + MAP + REDUCE,
        [
            '2:35 the parameter "p" is given twice',
            '2:56 "COUNT" is filled in by the runner; choose another name',
        ],
    ),
    "a generation without a prompt": (
        NAME + "input: {generate: {prompt: '', schema: [a], autoApprove: true}}\n" + MAP + REDUCE,
        ["2:28 input.generate.prompt must not be empty"],
    ),
    "a generation without fields": (
        NAME + "input: {generate: {prompt: x, schema: [], autoApprove: true}}\n" + MAP + REDUCE,
        ["2:39 input.generate.schema must not be empty"],
    ),
    "generated fields that are no names": (
        NAME + "input: {generate: {prompt: x, schema: [a, 'b c', a], autoApprove: true}}\n"
        + MAP + REDUCE,
        [
            ('2:43 input.generate.schema: "b c" is not a name; use letters, digits and _, '
            "a letter first"),
            '2:50 input.generate.schema: "a" is here twice',
        ],
    ),
    "an approval that is no boolean": (
        NAME + "input: {generate: {prompt: x, schema: [a], autoApprove: yes}}\n" + MAP + REDUCE,
        ['2:57 input.generate.autoApprove must be true or false; "yes" is text, write true'],
    ),
    "a generation that a person must approve": (
        NAME + "input: {generate: {prompt: x, schema: [a]}}\n" + MAP + REDUCE,
        [
            ("warning 2:9 input.generate without autoApprove: review the items "
            "before the run continues")
        ],
    ),
    "a limit of nothing": (
        NAME + "input: {items: [{a: 1}], limit: 0}\n" + MAP + REDUCE,
        ["warning 2:33 input.limit is 0, so no item is taken"],
    ),
    "a negative limit": (
        NAME + "input: {items: [{a: 1}], limit: -3}\n" + MAP + REDUCE,
        ["2:33 input.limit must be a whole number, at least 0; it is -3"],
    ),
    "a temperature that is too high": (
        NAME + "settings: {temperature: 5}\n" + INPUT + MAP + REDUCE,
        ["2:25 settings.temperature must be a number, at least 0 and at most 2; it is 5"],
    ),
    "a source that is only a database": (
        NAME + "input: {from: 'my: bugs.db'}\n" + MAP + REDUCE,
        [
            ('2:15 input.from must be a list or a mapping (key: value); it is "my: bugs.db"; '
            'write {type: sqlite, path: "my: bugs.db", query: select …}')
        ],
    ),
    "a source that is only a pattern": (
        "name: x\nnodes: {a: {kind: load, source: '*.md'}, b: {kind: map, from: a, prompt: x}}\n",
        [
            ('2:33 nodes.a.source must be a mapping (key: value); it is "*.md"; '
            'write {type: glob, pattern: "*.md"}')
        ],
    ),
    "no parallel calls": (
        NAME + INPUT + 'map: {prompt: "{{a}}", parallel: 0}\n' + REDUCE,
        ["3:34 map.parallel must be a whole number, at least 1; it is 0"],
    ),
    "a prompt without placeholders": (
        NAME + INPUT + "map: {prompt: hello}\n" + REDUCE,
        ["warning 3:15 the prompt holds no {{placeholder}}: every item asks the same"],
    ),
    "a rule filter without rules": (
        NAME + INPUT + "filter: {type: rule, rule: {rules: []}}\n" + MAP + REDUCE,
        ["3:36 filter.rule has no rules"],
    ),
    "a rule filter without rule": (
        NAME + INPUT + "filter: {type: rule}\n" + MAP + REDUCE,
        ['3:1 filter: "rule" is missing for type: rule'],
    ),
    "an AI filter without a prompt": (
        NAME + INPUT + "filter: {type: ai, ai: {}}\n" + MAP + REDUCE,
        ["3:20 filter.ai has no prompt: give prompt or promptFile"],
    ),
    "an AI filter that cannot answer": (
        NAME + INPUT + "filter: {type: ai, ai: {prompt: '{{a}}?', output: [why]}}\n" + MAP + REDUCE,
        [
            '3:51 filter.ai.output needs the field "include": it says whether the item is kept'
        ],
    ),
    "an unknown operator": (
        NAME + INPUT + "filter: {type: rule, rule: {rules: [{field: a, operator: is, value: 1}]}}\n"
        + MAP + REDUCE,
        [
            ('3:58 filter.rule.rules[1].operator: "is" is not one of contains, eq, equals, '
            "greater_than, gt, gte, in, less_than, lt, lte, matches, neq, nin, not_contains, "
            "not_equals, not_in")
        ],
    ),
    "a cron that cannot be": (
        NAME + "schedule: {cron: '0 25 * * *'}\n" + INPUT + MAP + REDUCE,
        [
            ("2:18 hour: 25 is outside 0-23. The hour takes 0-23: a value, a list 9,17, "
            "a range 9-17, a step */2, or *.")
        ],
    ),
    "a jitter without a unit": (
        NAME + "schedule: {cron: '@daily', jitter: '5 parsecs'}\n" + INPUT + MAP + REDUCE,
        ["2:36 schedule.jitter: '5 parsecs' is not a duration"],
    ),
    "a pipeline as a list": ("- a\n", ["1:1 a pipeline is a mapping: name, input, map and reduce"]),
    "everything one could wish for, misspelt": (
        ("nmae: x\nshedule: {cron: '@daily'}\ninput: {itmes: []}\nmap: {promptfile: a.md}\n"
        "reduce: {typ: list}\n"),
        [
            '1:1 the pipeline: unknown key "nmae"; did you mean "name"?',
            '2:1 the pipeline: unknown key "shedule"; did you mean "schedule"?',
            '3:9 input: unknown key "itmes"; did you mean "items"?',
            '4:7 map: unknown key "promptfile"; did you mean "promptFile"?',
            '5:10 reduce: unknown key "typ"; did you mean "type"?',
        ],
    ),
}  # fmt: skip
