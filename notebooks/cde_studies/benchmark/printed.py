"""Scores that the paper prints, task by task (CDE Table 7, and Table 9 of the supplement, which has
the tasks behind cde-small-v1 in Table 2).

Each model was trained once, so an interval over tasks says how a gain varies over other tasks of
the same kinds, and not what a second training would give. Some tasks are close relatives, such as
STS12 to STS17, but count as if they were not, so an interval may be too narrow.
"""

from __future__ import annotations

import re

import pandas as pd

from cde.intervals import Interval, run_interval

#: tasks by type, each with its scores in a random and in its own context
_TABLE9 = {
    "Classification": """AmazonCounterfactualClassification 87.6 87.0
        AmazonPolarityClassification 94.6 94.7 AmazonReviewsClassification 55.7 55.8
        Banking77Classification 87.5 88.6 EmotionClassification 74.9 74.9
        ImdbClassification 93.4 93.6 MTOPDomainClassification 95.4 96.0
        MTOPIntentClassification 86.8 89.2 MassiveIntentClassification 74.8 76.6
        MassiveScenarioClassification 77.8 78.9 ToxicConversationsClassification 74.4 72.8
        TweetSentimentExtractionClassification 72.7 72.6""",
    "Clustering": """ArxivClusteringP2P 47.1 48.6 ArxivClusteringS2S 38.1 40.5
        BiorxivClusteringP2P 41.5 44.9 BiorxivClusteringS2S 35.8 37.9
        MedrxivClusteringP2P 34.6 37.7 MedrxivClusteringS2S 33.0 35.5
        RedditClustering 59.0 59.4 RedditClusteringP2P 64.1 64.5
        StackExchangeClustering 66.0 66.8 StackExchangeClusteringP2P 38.2 38.9
        TwentyNewsgroupsClustering 55.3 56.9""",
    "PairClassification": """SprintDuplicateQuestions 95.2 95.3 TwitterSemEval2015 71.6 72.9
        TwitterURLCorpus 85.6 85.9""",
    "Reranking": """AskUbuntuDupQuestions 60.2 61.3 MindSmallReranking 30.4 30.1
        SciDocsRR 80.1 82.9 StackOverflowDupQuestions 50.6 52.7""",
    "Retrieval": """ArguAna 66.5 72.0 CQADupstack 38.0 39.8 ClimateFEVER 19.2 25.7
        DBPedia 39.4 40.1 FEVER 81.6 86.1 FiQA2018 40.7 45.4 HotpotQA 63.8 66.7
        MSMARCO 40.9 41.5 NFCorpus 34.0 34.7 NQ 57.1 60.0 QuoraRetrieval 89.0 89.8
        SCIDOCS 19.2 21.8 SciFact 71.4 71.8 TRECCOVID 76.1 79.4 Touche2020 29.4 24.3""",
    "STS": """BIOSES 86.2 86.7 SICK-R 77.0 77.4 STS12 74.3 74.2 STS13 85.6 86.1 STS14 78.4 78.9
        STS15 87.4 87.5 STS16 84.3 84.3 STS17 89.2 89.7 STS22 66.1 66.0
        STSBenchmark 85.0 85.5""",
    "Summarization": "SummEval 31.6 31.2",
}
#: the tasks of retrieval in the order above
_TABLE7 = {
    "unsupervised, baseline": """54.8 41.4 24.7 40.2 74.4 39.9 63.8 35.0 35.7 48.6 88.2 20.2 72.0
        62.2 19.2""",
    "unsupervised, contextual": """54.9 43.1 24.4 40.7 79.6 42.1 68.8 38.9 36.5 57.8 88.9 21.1 72.8
        77.1 21.9""",
    "supervised, baseline": """49.3 40.5 38.3 45.0 85.0 38.4 73.6 43.1 35.0 59.4 87.7 18.3 70.5 79.9
        28.2""",
    "supervised, contextual": """53.8 41.2 38.8 43.3 89.2 40.1 73.9 42.2 35.9 61.6 87.1 20.1 72.7
        82.6 27.8""",
}


def task_scores() -> pd.DataFrame:
    """Table 9 of the supplement: type, random and own of each task of MTEB, for cde-small-v1 with
    random training documents as context, and with texts of the task.
    """
    lines = [
        (kind, name, float(random), float(own))
        for kind, text in _TABLE9.items()
        for name, random, own in re.findall(r"(\S+) ([\d.]+) ([\d.]+)", text)
    ]
    columns = ["type", "task", "random", "own"]
    return pd.DataFrame(lines, columns=columns).set_index("task")


def retrieval_scores() -> pd.DataFrame:
    """Table 7: NDCG@10 of the baseline and of the contextual model on each task of retrieval, after
    unsupervised and after supervised training.
    """
    tasks = task_scores().query("type == 'Retrieval'").index
    numbers = {name: [float(one) for one in text.split()] for name, text in _TABLE7.items()}
    return pd.DataFrame(numbers, index=tasks)


def printed_gains() -> dict[str, Interval]:
    """Points that the paper's models gain, with intervals over tasks: by the own context over a
    random one, for each type of two tasks or more and for all; and by the contextual model over the
    baseline, before and after supervised training.
    """
    scores, search = task_scores(), retrieval_scores()
    gains = {kind: of["own"] - of["random"] for kind, of in scores.groupby("type", sort=False)}
    gains = {kind: of for kind, of in gains.items() if len(of) > 1}
    gains["all"] = scores["own"] - scores["random"]
    for phase in ("unsupervised", "supervised"):
        above = search[f"{phase}, contextual"] - search[f"{phase}, baseline"]
        gains[f"Table 7, {phase}"] = above
    return {str(name): run_interval(of, "tasks") for name, of in gains.items()}
